"""Signed and stored records: manifests, plans, blobs, DHT records, admissions."""
