package image

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Kind is the sort of object that a target's compiler makes.
type Kind string

// Kinds of target.
const (
	CPU Kind = "cpu" // shared object
	PTX Kind = "ptx" // text for NVIDIA's driver
	HSA Kind = "hsa" // AMD code object
)

// Target is one architecture that images are built for.
type Target struct {
	Arch string // as in framework.ImageInfo.Arch
	Kind Kind
	ptx  string // least PTX version
	own  *OwnTarget
}

// Own is the kind of the targets that a spec brings itself.
const Own Kind = "own"

// OwnTarget describes images for the devices of a maker that mscclpp-go does not know: how they are compiled. It is part of a
// spec. The compiler reads the wrapper from its standard input, as in
//
//	COMPILER FLAGS -DMSCCLPP_… -I… -x LANGUAGE - -o FILE
//
// so flags say for which device, and may have a header of the maker's included before all others. Results have to be the same
// on all devices: multiplications and additions are not to be fused.
type OwnTarget struct {
	Arch      string   `json:"arch"`                // as the device names it
	Compiler  string   `json:"compiler"`            // found in PATH
	Flags     []string `json:"flags"`               // as they are, before all others
	Language  string   `json:"language"`            // "c++"
	Extension string   `json:"extension"`           // of the image's file: ".so"
	Libraries []string `json:"libraries,omitempty"` // flags after the source
}

// Targets are all that can be built.
var Targets = []Target{
	{Arch: "x86-64-v2", Kind: CPU},
	{Arch: "x86-64-v3", Kind: CPU},
	{Arch: "x86-64-v4", Kind: CPU},
	{Arch: "sm_80", Kind: PTX, ptx: "70"},
	{Arch: "sm_90", Kind: PTX, ptx: "78"},
	{Arch: "gfx90a", Kind: HSA},
	{Arch: "gfx942", Kind: HSA},
}

// FindTarget returns the target of an architecture.
func FindTarget(arch string) (Target, error) {
	names := make([]string, len(Targets))
	for i, t := range Targets {
		if t.Arch == arch {
			return t, nil
		}
		names[i] = t.Arch
	}
	return Target{}, fmt.Errorf("%w: target %q: expected one of %s", framework.ErrInvalid, arch, strings.Join(names, " "))
}

// ParseTargets reads a list such as "x86-64-v3,sm_90". "cpu" and "gpu" name all of
// their kind, "native" the best for the processor that asks.
func ParseTargets(list string) ([]Target, error) {
	var out []Target
	for _, name := range strings.Split(list, ",") {
		switch name {
		case "cpu", "gpu":
			for _, t := range Targets {
				if (t.Kind == CPU) == (name == "cpu") {
					out = append(out, t)
				}
			}
		case "native":
			t, err := native()
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		default:
			t, err := FindTarget(name)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
	}
	return out, nil
}

func native() (Target, error) {
	x := &cpu.X86
	switch {
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL:
		return FindTarget("x86-64-v4")
	case x.HasAVX2 && x.HasBMI1 && x.HasBMI2 && x.HasFMA:
		return FindTarget("x86-64-v3")
	case x.HasSSE42 && x.HasPOPCNT:
		return FindTarget("x86-64-v2")
	}
	return Target{}, fmt.Errorf("%w: target native: no images are made for this processor (%s)", framework.ErrUnavailable, runtime.GOARCH)
}

// Flags that change what is computed are the same for all targets: results must not
// depend on where a kernel runs, so multiplications and additions are not fused.
var common = []string{"-std=c++17", "-O3", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti"}

// flags are the arguments of the compiler but for includes, defines and files.
func (u unit) flags() []string {
	t := u.target
	if t.Kind == Own {
		return slices.Clone(t.own.Flags)
	}
	flags := append([]string(nil), common...)
	switch t.Kind {
	case CPU:
		flags = append(flags, "-march="+t.Arch, "-fPIC", "-shared", "-fvisibility=hidden", "-fvisibility-inlines-hidden",
			"-fno-math-errno", "-fno-trapping-math", "-fno-threadsafe-statics", "-fno-asynchronous-unwind-tables",
			// Nothing of the C++ library: an image needs libc alone.
			"-nodefaultlibs", "-Wl,-z,defs", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-s")
	case PTX:
		version := t.ptx
		if u.family.PTX > version && t.Arch != "sm_80" {
			version = u.family.PTX
		}
		flags = append(flags, "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch="+t.Arch,
			"--cuda-feature=+ptx"+version, "-DMSCCLPP_PTX="+version, "-fno-ident", "-Wall", "-Wextra", "-Werror", "-S")
	case HSA:
		flags = append(flags, "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib",
			"--offload-arch="+t.Arch, "-mcode-object-version=5", "-fuse-cuid=none", "-fno-ident",
			"-Wall", "-Wextra", "-Werror")
	}
	return flags
}

// language is the value of -x.
func (t Target) language() string {
	switch t.Kind {
	case PTX:
		return "cuda"
	case HSA:
		return "hip"
	case Own:
		return t.own.Language
	}
	return "c++"
}
