"""What the doctor prints holds no secrets: the same rules as for what is stored."""

from bench_lib.faults.secrets import HIDDEN as HIDDEN
from bench_lib.faults.secrets import hidden as hidden
from bench_lib.faults.secrets import secrets as secrets
