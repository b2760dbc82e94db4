"""Bytes on the wire: limits, frames, tensor headers, records and messages. No input or output here."""
