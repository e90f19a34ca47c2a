"""What of the machine makes times unsteady: its CPUs, its container, its kernel."""

from bench_lib.doctor.finding import Check, Finding, absent, ok, warn
from bench_lib.doctor.snapshot import Snapshot


def cpu_governor(s: Snapshot) -> Finding:
    """Do the CPUs keep their clock?"""
    governor = s.host.governor
    if not governor:
        return absent("the machine does not tell (virtual machines seldom do)")
    if governor == "performance":
        return ok(governor)
    return warn(governor, "performance", "`cpupower frequency-set -g performance` as root")


def cpu_limit(s: Snapshot) -> Finding:
    """Does the container's limit stop this process's CPUs every now and then?"""
    quota, cpus = s.host.cpu_quota, s.host.cpus
    if quota is not None and quota < cpus:
        mend = "start the container without a CPU limit (--cpus, limits.cpu), or pin it with --cpuset-cpus"
        return warn(
            f"a limit of {quota:g} CPUs on {cpus}: threads are stopped when it is used up", "none", mend
        )
    if cpus < 2:
        mend = "give it two or more: what the suite does beside a case disturbs it"
        return warn("1 CPU", "two or more", mend)
    return ok(f"{cpus} CPUs, no limit below")


def load(s: Snapshot) -> Finding:
    """Is something else busy on the CPUs?"""
    found = f"load {s.host.load:.1f} on {s.host.cpus} CPUs"
    if s.host.load <= max(1.0, 0.5 * s.host.cpus):
        return ok(found)
    return warn(
        found, "an idle machine", "wait for the other work, or end it: host-side times are not steady"
    )


def container(s: Snapshot) -> Finding:
    """Is this a container or a virtual machine, and of a kind that slows system calls?"""
    found = f"container: {s.host.container}, virtual machine: {s.host.virtualisation}"
    if s.host.virtualisation == "gvisor":
        mend = "measure outside of it: each call to the driver goes through gVisor"
        return warn(found, "a kernel of its own", mend)
    return ok(found)


def wsl(s: Snapshot) -> Finding:
    """Is this Windows' subsystem for Linux?"""
    if not s.host.wsl:
        return absent("Linux itself")
    mend = "measure on Linux itself: under WSL launches go through Windows, pages do not migrate by faults"
    return warn(f"WSL ({s.host.kernel})", "Linux itself", mend)


CHECKS = tuple(map(Check, (cpu_governor, cpu_limit, load, container, wsl)))
