"""A Cortex-M4 without an operating system: compile a header for it, weigh it, and run it in an emulator.

Needs arm-none-eabi-gcc with newlib, and qemu-system-arm to run (Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi
qemu-system-arm). The board is QEMU's mps2-an386; the program talks to the host by semihosting.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"
FLAGS = (
    *("-std=c99", "-Os", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    *("-Wall", "-Wextra", "-pedantic", "-Werror", "-ffunction-sections", "-fdata-sections"),
)
LINK = ("-nostartfiles", "-Wl,--gc-sections", "-T", "board.ld", "--specs=nosys.specs", "-lm")
SCRIPT = """
MEMORY { FLASH (rx) : ORIGIN = 0, LENGTH = 4M  RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(reset)
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
  .ARM.exidx : { *(.ARM.exidx*) } > FLASH
  .data : { *(.data*) } > RAM AT > FLASH
  .bss : { *(.bss*) *(COMMON) } > RAM
  end = .;
  stack_top = ORIGIN(RAM) + LENGTH(RAM);
}
"""
# Prints a label a line. The numbers of the rows are floats, and so are those of the answers where there are values.
PROGRAM = """
#include "{name}.h"
#include "rows.h"

extern char stack_top;
void reset(void);
__attribute__((section(".vectors"), used)) static const struct {{
    char *stack;
    void (*reset)(void);
}} vectors = {{&stack_top, reset}};

static void call_host(int what, const void *argument) {{
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}}

__attribute__((noinline)) static int ask(const float *x) {{ return {name}_predict(x); }}

static void print(int number) {{
    char text[16], *at = text + 15;
    unsigned int rest = number < 0 ? 0u - (unsigned int)number : (unsigned int)number;
    *at = 0;
    *--at = '\\n';
    do *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (number < 0) *--at = '-';
    call_host(4, at);
}}

void reset(void) {{
    int i;
    *(volatile unsigned int *)0xE000ED88u |= 0xFu << 20; /* lets the program use the floating point unit */
    __asm__ volatile("dsb\\nisb");
    for (i = 0; i < N_ROWS; ++i) print(ask(rows + i * {name}_N_FEATURES));
    call_host(0x18, (const void *)0x20026);
    for (;;) {{
    }}
}}
"""

EMPTY = """
#define empty_N_FEATURES 1
static inline int empty_predict(const float *x) { return x[0] > 0; }
"""


@dataclass(frozen=True)
class Weight:
    """Bytes on the board: tables and code of the model, library functions it needs, and stack below its call."""

    model: int
    library: int
    stack: int

    @property
    def flash(self) -> int:
        """All that the model adds to a program."""
        return self.model + self.library


def can_compile() -> bool:
    """Whether the cross compiler is installed."""
    return shutil.which(COMPILER) is not None


def can_run() -> bool:
    """Whether the emulator is installed too."""
    return can_compile() and shutil.which(EMULATOR) is not None


def weigh(header: Path, name: str, real: str = "double") -> Weight:
    """What a header takes of flash and stack."""
    folder, no_rows = header.parent, np.zeros((1, 1))
    (folder / "empty.h").write_text(EMPTY)
    sizes = []
    for program in ("empty", name):
        _write_program(folder, program, no_rows)
        _compile(folder, program, real)
        sizes.append((_sections(folder / "board.o"), _sections(folder / "board.elf")))
    model, whole = (new - old for old, new in zip(*sizes, strict=True))
    return Weight(model, whole - model, _stack(folder))


def run(header: Path, name: str, rows: Any, real: str = "double") -> list[int]:
    """Labels of rows, from the emulated board."""
    folder = header.parent
    _write_program(folder, name, np.asarray(rows))
    _compile(folder, name, real)
    command = [EMULATOR, "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    command += ["-kernel", "board.elf"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    # Semihosting writes to the emulator's stderr.
    return [int(line) for line in (done.stdout + done.stderr).split() if line.lstrip("-").isdigit()]


def _write_program(folder: Path, name: str, rows: Any) -> None:
    numbers = ",\n".join(f"{float(v)!r}f" for v in np.asarray(rows, dtype=np.float32).ravel())
    head = f"#define N_ROWS {len(rows)}\nstatic const float rows[{max(rows.size, 1)}] = {{\n{numbers}\n}};\n"
    (folder / "rows.h").write_text(head)
    (folder / "board.ld").write_text(SCRIPT)
    (folder / "board.c").write_text(PROGRAM.format(name=name))


def _compile(folder: Path, name: str, real: str) -> None:
    define = f"-D{name}_REAL={real}"
    _call(folder, COMPILER, *FLAGS, define, "-fstack-usage", "-c", "board.c", "-o", "board.o")
    _call(folder, COMPILER, *FLAGS, "board.o", *LINK, "-o", "board.elf")


def _stack(folder: Path) -> int:
    """Stack of the functions below the model's call, added up; those that were inlined are part of their callers."""
    own = ("reset", "print", "call_host")
    parts = [line.split("\t") for line in (folder / "board.su").read_text().splitlines()]
    return sum(int(size) for where, size, _ in parts if where.rsplit(":", 1)[1] not in own)


def _sections(file: Path) -> int:
    told = _call(file.parent, "arm-none-eabi-size", file.name).splitlines()[1].split()
    return int(told[0]) + int(told[1])


def _call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[:2000]}")
    return done.stdout
