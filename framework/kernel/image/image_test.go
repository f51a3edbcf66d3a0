package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

const addKernel = `#include <mscclpp/device.h>
#include "args.h"
MSCCLPP_KERNEL(add, Args, a) {
  mscclpp::reduce_n<mscclpp::Element>(a.out, a.in, 2, a.count, mscclpp::kSum, 1.0, mscclpp::global_thread(), mscclpp::global_threads());
}
`

const addArgs = `#pragma once
struct Args { void* out; const void* in[2]; uint64_t count; };
`

// project writes a spec with one family of two types and returns its file.
func project(t *testing.T, kernel string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"add.cc":       kernel,
		"args.h":       addArgs,
		"kernels.json": `{"name": "test", "families": [{"name": "add", "sources": ["add.cc"], "types": ["f32", "u8"]}]}`,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "kernels.json")
}

func spec(t *testing.T, file string) *Spec {
	t.Helper()
	s, err := ReadSpec(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func targets(t *testing.T, list string) Options {
	t.Helper()
	parsed, err := ParseTargets(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range parsed {
		if _, err := (Compilers{}).find(t.Context(), target); err != nil {
			t.Skipf("no compiler: %v", err)
		}
		if target.Kind == HSA {
			if _, err := exec.LookPath(linker); err != nil {
				t.Skip("no linker: lld-19")
			}
		}
	}
	return Options{Targets: parsed}
}

// A spec may name folders by absolute paths, as those of an installation are, and sources
// in them: it is the same image wherever the spec lies.
func TestAbsoluteFolders(t *testing.T) {
	opt := targets(t, "x86-64-v2")
	there := filepath.Dir(project(t, addKernel))
	file := filepath.Join(t.TempDir(), "kernels.json")
	text := fmt.Sprintf(`{"name": "elsewhere", "include": [%q], "families": [{"name": "add", "sources": ["add.cc"], "types": ["f32"]}]}`, there)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(there, "near.json")
	if err := os.WriteFile(beside, []byte(`{"name": "near", "families": [{"name": "add", "sources": ["add.cc"], "types": ["f32"]}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var made []Image
	for _, f := range []string{file, beside} {
		m, err := Build(t.Context(), spec(t, f), t.TempDir(), opt)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, m.Images[0])
	}
	if made[0].Source != made[1].Source || made[0].SHA256 != made[1].SHA256 {
		t.Errorf("by absolute folders %+v, beside the spec %+v: expected one image", made[0], made[1])
	}
}

// proves checks that an image is built again until that is noted, and again when its sources are others.
func proves(t *testing.T, s *Spec, dir string, opt Options) {
	t.Helper()
	opt.Proven = filepath.Join(t.TempDir(), "proven")
	for i, want := range []int{0, 2, 2} {
		report, err := Check(t.Context(), s, dir, opt)
		if err != nil || len(report.Proven) != want || len(report.Rebuilt) != 2-want {
			t.Errorf("check %d: %+v, %v: expected %d that were equal before", i, report, err, want)
		}
	}
	m, err := readManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	u, img := s.units(opt.Targets)[0], m.Images[0]
	c, err := opt.Compilers.find(t.Context(), u.target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(u.proof(img.Source, &img, c, opt)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(){
		"image": func() { img.SHA256 = "0" }, "sources": func() { img.Source = "0" }, "layout": func() { img.Layout = "0" },
		"flags": func() { img.Flags = append(slices.Clone(img.Flags), "-O0") }, "version": func() { c.version = "0" }, "program": func() { c.path = "true" },
	} {
		kept, with := img, c
		change()
		if _, err := os.Stat(u.proof(img.Source, &img, c, opt)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("another %s: %v: expected no proof", name, err)
		}
		img, c = kept, with
	}
	// A folder that cannot be made costs time, and fails nothing.
	opt.Proven = filepath.Join(dir, "manifest.json", "none")
	if report, err := Check(t.Context(), s, dir, opt); err != nil || len(report.Rebuilt) != 2 {
		t.Errorf("no folder for proofs: %+v, %v", report, err)
	}
}

// An image is compiled once for all folders that share a store, and again where anything that decides its bytes is
// another; what is damaged there is no image.
func TestStore(t *testing.T) {
	opt := targets(t, "x86-64-v2")
	opt.Store = filepath.Join(t.TempDir(), "store")
	file := project(t, addKernel)
	there := filepath.Dir(file)
	build := func(why string, file string, images int) *Manifest {
		t.Helper()
		m, err := Build(t.Context(), spec(t, file), t.TempDir(), opt)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadDir(opt.Store)
		if err != nil || len(kept) != images {
			t.Errorf("%s: %d images are kept, %v: expected %d", why, len(kept), err, images)
		}
		return m
	}
	// Each is kept under its sources, and under what is left of them behind the preprocessor.
	images := 2 * len(spec(t, file).units(opt.Targets))
	first := build("first", file, images)
	again := build("again", file, images)
	other := build("another copy of the sources", project(t, addKernel), images)
	for _, m := range []*Manifest{again, other} {
		if !reflect.DeepEqual(m, first) {
			t.Errorf("%+v, and before %+v: expected the same", m, first)
		}
	}
	kept, err := filepath.Glob(filepath.Join(opt.Store, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range kept { // an image that only the store can have
		data, ok := fetch(path)
		if !ok {
			t.Fatalf("%s is not whole", path)
		}
		keep(path, append(data, "from the store"...))
	}
	if m := build("from the store", file, images); m.Images[0].Bytes != first.Images[0].Bytes+uint64(len("from the store")) {
		t.Errorf("%+v: expected what is in the store", m.Images[0])
	}
	for _, path := range kept {
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
	}
	if m := build("damaged", file, images); m.Images[0].SHA256 != first.Images[0].SHA256 {
		t.Errorf("%+v: expected a new build in place of what is damaged", m.Images[0])
	}
	source := filepath.Join(there, "add.cc")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source, append(text, "// more\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	build("other sources", file, images+images/2) // the same behind the preprocessor
	if err := os.Chmod(opt.Store, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source, append(text, "// yet more\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	build("a store that others can write to", file, images+images/2)
}

func TestBuildAndCheckEveryKindOfTarget(t *testing.T) {
	for _, arch := range []string{"x86-64-v2", "sm_80", "gfx90a"} {
		t.Run(arch, func(t *testing.T) {
			opt := targets(t, arch)
			s, dir := spec(t, project(t, addKernel)), t.TempDir()
			m, err := Build(t.Context(), s, dir, opt)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Images) != 2 || m.Images[0].ID != "add-f32-"+arch || m.Images[1].Type != "u8" {
				t.Fatalf("images %+v", m.Images)
			}
			if !slices.Equal(m.Images[0].Symbols, []string{"add"}) {
				t.Errorf("symbols %q, expected add", m.Images[0].Symbols)
			}
			report, err := Check(t.Context(), s, dir, opt)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Rebuilt) != 2 {
				t.Errorf("rebuilt %q: expected both images to be compared byte for byte", report.Rebuilt)
			}
			proves(t, s, dir, opt)
			set, err := Open(os.DirFS(dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range set.Infos() {
				data, err := set.Read(info.ID)
				if err != nil {
					t.Fatal(err)
				}
				if uint64(len(data)) != info.Bytes {
					t.Errorf("%s: %d bytes, the manifest says %d", info.ID, len(data), info.Bytes)
				}
			}
		})
	}
}

func TestBuildLeavesWhatIsUpToDate(t *testing.T) {
	opt := targets(t, "x86-64-v2")
	file, dir := project(t, addKernel), t.TempDir()
	if _, err := Build(t.Context(), spec(t, file), dir, opt); err != nil {
		t.Fatal(err)
	}
	before := stat(t, filepath.Join(dir, "add-f32-x86-64-v2.so"))
	if _, err := Build(t.Context(), spec(t, file), dir, opt); err != nil {
		t.Fatal(err)
	}
	if after := stat(t, filepath.Join(dir, "add-f32-x86-64-v2.so")); !os.SameFile(before, after) {
		t.Error("an image that was up to date was written again")
	}
	edit(t, filepath.Join(filepath.Dir(file), "args.h"), "#pragma once", "#pragma once\n// changed")
	if _, err := Build(t.Context(), spec(t, file), dir, opt); err != nil {
		t.Fatal(err)
	}
	if after := stat(t, filepath.Join(dir, "add-f32-x86-64-v2.so")); os.SameFile(before, after) {
		t.Error("a changed header did not lead to a new build")
	}
}

func TestCheckFindsDifferences(t *testing.T) {
	cases := map[string]struct {
		change func(t *testing.T, project, images string)
		want   string
	}{
		"source": {func(t *testing.T, project, _ string) {
			edit(t, filepath.Join(project, "add.cc"), "kSum", "kProd")
		}, "its sources have changed"},
		"image": {func(t *testing.T, _, images string) {
			edit(t, filepath.Join(images, "add-f32-x86-64-v2.so"), "mscclpp_abi", "mscclpp_abj")
		}, "the manifest says"},
		"missing": {func(t *testing.T, _, images string) {
			if err := os.Remove(filepath.Join(images, "add-u8-x86-64-v2.so")); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"dropped": {func(t *testing.T, project, _ string) {
			edit(t, filepath.Join(project, "kernels.json"), `["f32", "u8"]`, `["f32"]`)
		}, "not in the spec any more"},
		"added": {func(t *testing.T, project, _ string) {
			edit(t, filepath.Join(project, "kernels.json"), `["f32", "u8"]`, `["f32", "u8", "i8"]`)
		}, "not in the manifest"},
		"flags": {func(t *testing.T, project, _ string) {
			edit(t, filepath.Join(project, "kernels.json"), `"types"`, `"defines": {"A": "1"}, "types"`)
		}, "other flags"},
	}
	opt := targets(t, "x86-64-v2")
	file, built := project(t, addKernel), t.TempDir()
	if _, err := Build(t.Context(), spec(t, file), built, opt); err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir, images := t.TempDir(), t.TempDir()
			for to, from := range map[string]string{dir: filepath.Dir(file), images: built} {
				if err := os.CopyFS(to, os.DirFS(from)); err != nil {
					t.Fatal(err)
				}
			}
			c.change(t, dir, images)
			_, err := Check(t.Context(), spec(t, filepath.Join(dir, "kernels.json")), images, opt)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, expected an error with %q", err, c.want)
			}
		})
	}
}

func TestCheckWithAnotherCompilerComparesHashes(t *testing.T) {
	opt := targets(t, "x86-64-v2")
	s, dir := spec(t, project(t, addKernel)), t.TempDir()
	if _, err := Build(t.Context(), s, dir, opt); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "c++")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho other compiler 1.0\n"), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	opt.Compilers.CPU = other
	report, err := Check(t.Context(), s, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Hashed) != 2 || report.Compiler != "other compiler 1.0" {
		t.Errorf("report %+v: expected two images compared by hash", report)
	}
}

func TestBuildReportsTheCompilersOutput(t *testing.T) {
	opt := targets(t, "x86-64-v2")
	opt.Jobs = 1 // the first image fails first
	_, err := Build(t.Context(), spec(t, project(t, "#error what is wrong\n")), t.TempDir(), opt)
	if err == nil || !strings.Contains(err.Error(), "what is wrong") || !strings.Contains(err.Error(), "add-f32-x86-64-v2") {
		t.Errorf("got %v, expected the image's id and the compiler's words", err)
	}
}

func TestBuildStopsWhenCancelled(t *testing.T) {
	opt := targets(t, "x86-64-v2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Build(ctx, spec(t, project(t, addKernel)), t.TempDir(), opt); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, expected %v", err, context.Canceled)
	}
}

func TestBuildWithoutCompiler(t *testing.T) {
	opt := Options{Targets: Targets[:1], Compilers: Compilers{CPU: "no-such-compiler"}}
	_, err := Build(t.Context(), spec(t, project(t, addKernel)), t.TempDir(), opt)
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "install") {
		t.Errorf("got %v, expected ErrUnavailable with advice", err)
	}
}

func TestHeadersAreFound(t *testing.T) {
	elsewhere := t.TempDir()
	folder := func(parts ...string) string {
		dir := filepath.Join(append([]string{t.TempDir()}, parts...)...)
		if err := os.MkdirAll(filepath.Join(dir, "mscclpp"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mscclpp", "device.h"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	root := func(dir string, up int) string {
		for range up {
			dir = filepath.Dir(dir)
		}
		return dir
	}
	installed, tree, other := folder("include"), folder("framework", "kernel", "include"), folder("framework", "kernel", "include")
	for _, c := range []struct{ name, exe, dir, want string }{
		{"installed", filepath.Join(root(installed, 1), "bin", "c"), elsewhere, installed},
		{"from a folder of a tree", filepath.Join(elsewhere, "bin", "c"), filepath.Join(root(tree, 3), "examples"), tree},
		{"the command of a tree, from elsewhere", filepath.Join(root(tree, 3), "bin", "c"), elsewhere, tree},
		{"the command of one tree in another", filepath.Join(root(tree, 3), "bin", "c"), root(other, 3), other},
	} {
		if got, err := findHeaders(c.exe, c.dir); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; expected %q", c.name, got, err, c.want)
		}
	}
	t.Chdir(root(installed, 1))
	if got, err := findHeaders("", elsewhere); err == nil {
		t.Errorf("a command that is not known: %q, expected nothing of the working directory", got)
	}
	if _, err := findHeaders(filepath.Join(elsewhere, "bin", "c"), elsewhere); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "--include") {
		t.Errorf("%v: expected ErrUnavailable that names --include", err)
	}
}

func TestOpenWithoutImages(t *testing.T) {
	_, err := Open(os.DirFS(t.TempDir()))
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "make kernels") {
		t.Errorf("got %v, expected ErrUnavailable that names make kernels", err)
	}
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func edit(t *testing.T, path, old, new string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s: no %q in it", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}
