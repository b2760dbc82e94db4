"""The status endpoint of every node: its document, its HTTP server and client, and the dashboard."""
