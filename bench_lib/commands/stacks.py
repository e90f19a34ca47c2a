"""Commands on the stacks of benchmarks/stacks.toml."""

import typer

from bench_lib.commands.words import Stacks, Wheels

app = typer.Typer(help="The stacks of benchmarks/stacks.toml.", no_args_is_help=True)


@app.command("list")
def stacks_list() -> None:
    """List the stacks, and which of them are here."""
    from rich.table import Table

    from bench_lib import screen
    from bench_lib.stacking import stock

    table = Table("stack", "kind", "requirement", "here", box=None)
    for row in stock.listing():
        table.add_row(*(str(cell) for cell in row))
    screen.console().print(table)


@app.command("show")
def stacks_show(names: Stacks) -> None:
    """Show what a stack is made of, where it lies, and the versions its libraries give."""
    from rich.table import Column, Table

    from bench_lib import screen
    from bench_lib.stacking import stock

    for name in names:
        table = Table("", Column("", overflow="fold"), box=None, show_header=False)
        for key, value in stock.described(name).items():
            if value:
                table.add_row(key, value)
        screen.console().print(table)


@app.command("create")
def stacks_create(names: Stacks, wheels: Wheels = None) -> None:
    """Fetch what a stack needs into the cache, and check that it is what it declares."""
    from bench_lib.stacking import stacks, stock

    stock.require_wheels([stacks.stack(name) for name in names], wheels)
    for name in names:
        typer.echo(f"{name}: {stock.create(name, wheels, lambda line: typer.echo(line, err=True))}")


@app.command("remove")
def stacks_remove(names: Stacks) -> None:
    """Remove stacks from the cache."""
    from bench_lib.stacking import stock

    for name in names:
        stock.remove(name)
        typer.echo(f"{name}: removed")
