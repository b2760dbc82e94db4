"""Who is who: keys, the authority, invites, certificates, rights and signed envelopes."""
