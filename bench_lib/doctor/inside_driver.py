"""A child in the stack's environment: libcuda and the devices it shows. Needs no torch."""

from bench_lib.device.driver import Driver
from bench_lib.doctor.speaking import begin, say, stage
from bench_lib.errors import CudaError, CudaGainsError, Unavailable
from bench_lib.identity import libraries
from bench_lib.memory import memory_mode


class _Of:
    """One device, for memory_mode."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver, self._ordinal = driver, ordinal

    def attribute(self, number: int) -> int:
        return self._driver.attribute(number, self._ordinal)


def main() -> None:
    """Say it."""
    begin()
    stage("loading libcuda")
    try:
        driver = Driver.load()
    except Unavailable:
        return
    say(library=str(next(iter(libraries.with_parts("cuda")), "")), cuda=".".join(map(str, driver.version)))
    stage("starting the CUDA driver (cuInit)")
    try:
        say(devices=[_device(driver, ordinal) for ordinal in range(driver.count())])
    except CudaGainsError as error:
        say(error=str(error), code=error.code if isinstance(error, CudaError) else 0)


def _device(driver: Driver, ordinal: int) -> dict[str, object]:
    info = driver.describe(ordinal)
    return {
        "uuid": info.uuid,
        "name": info.name,
        "compute_capability": ".".join(map(str, info.compute_capability)),
        "attributes": memory_mode.attributes(_Of(driver, ordinal)),
    }


if __name__ == "__main__":
    main()
