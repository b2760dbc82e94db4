/* A wall clock that is wrong by as much as a file says; preloaded into the programs of a host (clocks.py).
 *
 * The file named by NETLAB_CLOCK holds nanoseconds to add, as a native 64-bit number. It is mapped, so that a
 * change is seen at once by programs that run. Monotonic clocks, and times of files, stay what they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t BILLION = 1000000000;
static const volatile int64_t *offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void attach(void)
{
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("NETLAB_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_clock_gettime)
        attach();
    int failed = real_clock_gettime(clock, now);
    if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t nanoseconds = now->tv_nsec + *offset % BILLION;
    now->tv_sec += *offset / BILLION;
    if (nanoseconds < 0 || nanoseconds >= BILLION) {
        now->tv_sec += nanoseconds < 0 ? -1 : 1;
        nanoseconds += nanoseconds < 0 ? BILLION : -BILLION;
    }
    now->tv_nsec = nanoseconds;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    if (!failed) {
        now->tv_sec = precise.tv_sec;
        now->tv_usec = precise.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *also)
{
    struct timespec precise;
    time_t now = clock_gettime(CLOCK_REALTIME, &precise) ? (time_t)-1 : precise.tv_sec;
    if (also)
        *also = now;
    return now;
}
