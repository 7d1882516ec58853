"""Tests in all folders import `zoo`, which lies here: this file puts the folder on their path."""
