package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestInspectPTX(t *testing.T) {
	const head = ".version 7.0\n.target sm_80\n.visible .entry k(\n)\n{\n"
	cases := map[string]struct{ body, want string }{
		"ordered":          {"\tred.release.sys.global.add.u64 [%rd1], %rd2;\n\tatom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1;\n", ""},
		"bare atomic":      {"\tatom.global.add.u64 %rd3, [%rd1], %rd2;\n", "bare atomic"},
		"no scope":         {"\tred.relaxed.global.add.u64 [%rd1], %rd2;\n", "bare atomic"},
		"no order":         {"\t@%p1 red.sys.global.add.u64 [%rd1], %rd2;\n", "bare atomic"},
		"bare multimem":    {"\tmultimem.red.global.add.u64 [%rd1], %rd2;\n", "bare atomic"},
		"old multimem":     {"\tmultimem.red.release.sys.global.add.u64 [%rd1], %rd2;\n", "PTX 8.2"},
		"barrier with red": {"\tbarrier.red.popc.u32 %r1, 0, %p1;\n\tbar.red.and.pred %p2, 0, %p1;\n", ""},
		"local array":      {"\t.local .align 8 .b8 \t__local_depot0[48];\n", "local memory"},
		"local store":      {"\t@!%p7 st.local.u32 [%rd1], %r1;\n", "local memory"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			symbols, err := inspect(PTX, []byte(head+c.body+"}\n"))
			switch {
			case c.want == "" && (err != nil || len(symbols) != 1 || symbols[0] != "k"):
				t.Errorf("symbols %q, error %v: expected k", symbols, err)
			case c.want != "" && (!errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, expected an error with %q", err, c.want)
			}
		})
	}
}

// Kernels that must not pass, compiled for each kind of GPU.
func TestBuildRefusesLocalMemory(t *testing.T) {
	const kernel = `#include <mscclpp/device.h>
#include "args.h"
MSCCLPP_KERNEL(add, Args, a) {
  uint32_t table[64];
  for (uint32_t i = 0; i < a.count; ++i) table[(i * 7) % 64] = static_cast<uint32_t>(i);
  static_cast<uint32_t*>(a.out)[0] = table[a.count % 64];
}
`
	for arch, want := range map[string]string{"sm_90": "local memory", "gfx942": "private memory"} {
		t.Run(arch, func(t *testing.T) {
			opt := targets(t, arch)
			_, err := Build(t.Context(), spec(t, project(t, kernel)), t.TempDir(), opt)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, expected an error with %q", err, want)
			}
		})
	}
}

func TestBuildRefusesBareAtomics(t *testing.T) {
	const kernel = `#include <mscclpp/device.h>
#include "args.h"
MSCCLPP_KERNEL(add, Args, a) {
  __scoped_atomic_fetch_add(static_cast<uint64_t*>(a.out), 1ul, __ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
}
`
	opt := targets(t, "sm_90")
	_, err := Build(t.Context(), spec(t, project(t, kernel)), t.TempDir(), opt)
	if err == nil || !strings.Contains(err.Error(), "bare atomic") {
		t.Errorf("got %v, expected an error about the bare atomic that the compiler makes of it", err)
	}
}

func TestBuildRefusesLibraries(t *testing.T) {
	const kernel = `#include <mscclpp/device.h>
#include <new>
#include "args.h"
MSCCLPP_KERNEL(add, Args, a) { *static_cast<void**>(a.out) = ::operator new(a.count); }
`
	opt := targets(t, "x86-64-v2")
	_, err := Build(t.Context(), spec(t, project(t, kernel)), t.TempDir(), opt)
	if err == nil || !strings.Contains(err.Error(), "undefined reference") {
		t.Errorf("got %v, expected the linker to miss the C++ library", err)
	}
}

func TestTypesOfSomeTargetsOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kernels.json")
	text := `{"families": [{"name": "a", "sources": ["x"], "types": ["f32", "i8"], "targets": ["sm_80", "sm_90"], "only": {"i8": ["sm_90"]}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSpec(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseTargets("gpu")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range s.units(all) {
		got = append(got, u.id())
	}
	slices.Sort(got)
	if want := []string{"a-f32-sm_80", "a-f32-sm_90", "a-i8-sm_90"}; !slices.Equal(got, want) {
		t.Errorf("units %q, expected %q", got, want)
	}
}

func TestReadSpecRefuses(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"unknown key":   {`{"name": "a", "familys": []}`, `unknown field "familys"`},
		"no families":   {`{"name": "a"}`, "no families"},
		"no sources":    {`{"families": [{"name": "a"}]}`, "no sources"},
		"bad name":      {`{"families": [{"name": "A b", "sources": ["x"]}]}`, "lower-case"},
		"twice":         {`{"families": [{"name": "a", "sources": ["x"]}, {"name": "a", "sources": ["x"]}]}`, "twice"},
		"unknown type":  {`{"families": [{"name": "a", "sources": ["x"], "types": ["f99"]}]}`, "f99"},
		"alias of type": {`{"families": [{"name": "a", "sources": ["x"], "types": ["float"]}]}`, "short name"},
		"target":        {`{"families": [{"name": "a", "sources": ["x"], "targets": ["sm_10"]}]}`, "sm_10"},
		"only a type":   {`{"families": [{"name": "a", "sources": ["x"], "types": ["f32"], "only": {"f16": ["sm_90"]}}]}`, `only: type "f16"`},
		"only a target": {`{"families": [{"name": "a", "sources": ["x"], "types": ["f32"], "only": {"f32": ["sm_10"]}}]}`, "sm_10"},
		"threads":       {`{"families": [{"name": "a", "sources": ["x"], "max_threads": 2048}]}`, "2048"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kernels.json")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadSpec(file)
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, expected ErrInvalid with %q", err, c.want)
			}
		})
	}
	if _, err := ReadSpec(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
}

func TestParseTargets(t *testing.T) {
	cpu, err := ParseTargets("cpu")
	if err != nil || len(cpu) != 3 {
		t.Errorf("cpu: %v, %v", cpu, err)
	}
	mixed, err := ParseTargets("gpu,x86-64-v3")
	if err != nil || len(mixed) != 5 {
		t.Errorf("gpu and one: %v, %v", mixed, err)
	}
	if _, err := ParseTargets("x86-64-v9"); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "x86-64-v3") {
		t.Errorf("unknown: %v, expected the list of known targets", err)
	}
}
