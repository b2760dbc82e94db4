"""Discovery; the only importer of kademlia."""
