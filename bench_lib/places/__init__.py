"""Results elsewhere: an address such as s3://bucket/prefix, and its files in a folder of this machine."""
