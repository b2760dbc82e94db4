"""What recovery lines cost a job that trains over slow links."""
