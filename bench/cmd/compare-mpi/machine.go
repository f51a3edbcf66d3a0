package main

import (
	"context"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

func cpus() int { return runtime.NumCPU() }

// describe says where and when the numbers were taken. What cannot be found out is
// "unknown": it stops no comparison.
func describe(ctx context.Context, j job) compare.Machine {
	m := compare.Machine{
		Date: time.Now().UTC().Format("2006-01-02"), CPUs: cpus(), Repetitions: j.repetitions,
		CPU: "unknown", Kernel: "unknown",
		MPI: firstLine(ctx, j.mpirun, "--version"), Version: firstLine(ctx, j.launcher, "--version"),
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = field(string(info), "model name")
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		// Without what a distributor or a cloud appends.
		m.Kernel, _, _ = strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
	}
	return m
}

func firstLine(ctx context.Context, command ...string) string {
	out, err := output(ctx, command)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// field finds "key : value" among lines.
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
