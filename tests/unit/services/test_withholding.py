"""Who is given trained weights."""

from swarm.ids import Digest, JobId, PeerId
from swarm.services.job import Job
from swarm.services.withholding import Withholding
from swarm.testing.manifests import sample_manifest
from swarm.wire.records.blobs import Blob

AUTHOR, READER, OTHER = PeerId("a" * 32), PeerId("r" * 32), PeerId("o" * 32)
COORDINATOR = PeerId("c" * 32)
WEIGHT, INITIAL = Digest("w" * 52), Digest("q" * 52)


def job(name: str = "j", *, author: PeerId = AUTHOR, export_to: tuple[str, ...] = (READER,)) -> Job:
    manifest = sample_manifest(export_to=export_to)
    return Job(id=JobId(name * 52), envelope=b"", manifest=manifest, author=author)


def publishing_the_weights(author: PeerId) -> Job:
    manifest = sample_manifest(graph=Blob(size=4, blocks=(WEIGHT,)))
    return Job(id=JobId("k" * 52), envelope=b"", manifest=manifest, author=author)


def allowed(withholding: Withholding, name: Digest = WEIGHT) -> list[PeerId]:
    return [peer for peer in (AUTHOR, READER, COORDINATOR, OTHER) if withholding.may_have(peer, name)]


def test_weights_are_for_author_coordinator_and_whom_the_manifest_names() -> None:
    withholding = Withholding(list)
    withholding.withhold(job(), [WEIGHT])
    assert allowed(withholding) == [AUTHOR, READER, COORDINATOR]
    assert OTHER in allowed(withholding, Digest("x" * 52))


def test_without_names_they_are_for_every_member() -> None:
    withholding = Withholding(list)
    withholding.withhold(job(export_to=()), [WEIGHT])
    assert OTHER in allowed(withholding)


def test_what_every_member_was_given_at_the_start_is_not_withheld() -> None:
    withholding = Withholding(list)
    withholding.withhold(job(), [INITIAL])
    assert OTHER in allowed(withholding, INITIAL)


def test_who_may_have_them_may_publish_a_job_on_them_and_nobody_else() -> None:
    jobs = [publishing_the_weights(OTHER)]
    withholding = Withholding(lambda: jobs)
    withholding.withhold(job(), [WEIGHT])
    assert OTHER not in allowed(withholding)
    jobs.append(publishing_the_weights(READER))
    assert OTHER in allowed(withholding)


def test_what_nothing_guards_any_more_is_named_to_be_thrown_away() -> None:
    withholding = Withholding(list)
    first, second = job(), job("k")
    withholding.withhold(first, [WEIGHT])
    withholding.withhold(second, [WEIGHT])
    assert withholding.forget(first) == ()
    assert OTHER not in allowed(withholding)
    assert withholding.forget(second) == (WEIGHT,)
