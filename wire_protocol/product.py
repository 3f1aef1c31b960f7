"""The product's name and version, as every program reports them."""

VERSION = "0.1.0"
API_PREFIX = "/api/v1"
ENROLL_PATH = f"{API_PREFIX}/enroll"
TRUST_PATH = f"{API_PREFIX}/trust"
