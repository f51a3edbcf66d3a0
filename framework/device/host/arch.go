package host

// #include "launch.h"
import "C"

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// archs lists the image architectures that the processor can run, best first.
func archs() []string {
	if level := int(C.mscclpp_host_level()); level > 0 {
		return levels(level)
	}
	return []string{runtime.GOARCH} // images of other processors carry Go's name of them
}

// levels spells the levels of x86-64, from the highest that images are made for.
func levels(highest int) []string {
	var names []string
	for l := highest; l >= 2; l-- {
		names = append(names, "x86-64-v"+strconv.Itoa(l))
	}
	return append(names, "x86-64")
}

// cpuName is the name that the processor gives itself, for people.
func cpuName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
