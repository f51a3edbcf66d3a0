package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

// conformPlugin makes this test program a plugin: "good", "bad", which forgets to
// check what it registers, "gpu" and "xgmi", which are for GPUs, "tcp", "absent", which has options and no
// hardware, or "dies".
const conformPlugin = "CONFORM_TEST_PLUGIN"

func init() {
	kind := os.Getenv(conformPlugin)
	if kind == "" {
		return
	}
	switch kind {
	case "dies":
		fmt.Fprintln(os.Stderr, "no such library")
		os.Exit(3)
	case "absent":
		plugins.Serve(func(struct{ Depth int }) (framework.Transport, error) {
			return nil, fmt.Errorf("%w: no adapter in this machine", framework.ErrUnavailable)
		})
	}
	plugins.Serve(func(struct{}) (framework.Transport, error) {
		switch kind {
		case "bad":
			return careless{loopback.New()}, nil
		case "gpu":
			return cudaipc.New(cudaipc.Config{}.Defaults())
		case "xgmi":
			return xgmi.New(xgmi.Config{}.Defaults())
		case "tcp":
			return tcp.New(tcp.Config{}.Defaults())
		}
		return loopback.New(), nil
	})
	os.Exit(0)
}

type careless struct{ *loopback.Transport }

func (c careless) Register(ctx context.Context, s framework.Segment) (framework.Registration, error) {
	r, err := c.Transport.Register(ctx, s)
	if errors.Is(err, framework.ErrInvalid) && s.Bytes == 0 {
		s.Bytes = 1
		return c.Transport.Register(ctx, s)
	}
	return r, err
}

// plugin writes a program that is a plugin of a kind.
func plugin(t *testing.T, kind string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), plugins.FilePrefix+"loopback")
	script := fmt.Sprintf("#!/bin/sh\n%s=%s GORACE=atexit_sleep_ms=0 exec '%s'\n", conformPlugin, kind, self)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// conformRun runs the verb and returns its lines and exit code.
func conformRun(t *testing.T, args ...string) (lines []string, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs}
	code = a.exitCode(a.run(append([]string{"conform"}, args...)))
	return strings.Split(strings.TrimSpace(out.String()), "\n"), errs.String(), code
}

func TestConformPasses(t *testing.T) {
	lines, stderr, code := conformRun(t, "--plugin", plugin(t, "good"), "--run", "^(control|memory)/")
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, strings.Join(lines, "\n"), stderr)
	}
	if want := fmt.Sprintf("%d passed, 0 failed", len(lines)-1); lines[len(lines)-1] != want {
		t.Errorf("last line %q, want %q", lines[len(lines)-1], want)
	}
}

func TestConformFails(t *testing.T) {
	lines, _, code := conformRun(t, "--plugin", plugin(t, "bad"), "--run", "^control/register")
	if code != 1 || lines[len(lines)-1] != "1 passed, 1 failed" {
		t.Errorf("exit code %d, last line %q", code, lines[len(lines)-1])
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "register no bytes: accepted") {
		t.Errorf("the report does not name the defect:\n%s", text)
	}
}

func TestConformJSON(t *testing.T) {
	lines, _, code := conformRun(t, "--plugin", plugin(t, "good"), "--run", "^control/(reach|listen)$", "--format", "json")
	if code != 0 || len(lines) != 3 {
		t.Fatalf("exit code %d, lines %q", code, lines)
	}
	for i, line := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		if i < 2 && (v["name"] == "" || v["pass"] != true) {
			t.Errorf("line %d: %v", i, v)
		}
		if i == 2 && (v["passed"] != 2.0 || v["transport"] != "loopback 1.0.0") {
			t.Errorf("totals: %v", v)
		}
	}
}

func TestConformUsage(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"--plugin", "x", "--transport", "y"},
		{"--plugin", "x", "--list"},
		{"--list", "--run", "no such test"},
		{"--plugin", "x", "--run", "("},
		{"--plugin", "x", "--format", "xml"},
		{"--plugin", "x", "--device", "gpu"},
		{"--plugin", plugin(t, "good"), "--run", "no such test"},
	} {
		if _, stderr, code := conformRun(t, args...); code != 2 || stderr == "" {
			t.Errorf("conform %q: exit code %d, stderr %q: want usage", args, code, stderr)
		}
	}
	if _, stderr, code := conformRun(t, "--plugin", "/nonexistent/plugin"); code != 1 || !strings.Contains(stderr, "/nonexistent/plugin") {
		t.Errorf("missing plugin: exit code %d, stderr %q", code, stderr)
	}
}

// Where there is no GPU, a transport for GPUs is tested as far as that goes, unless
// GPUs were asked for.
func TestConformWithoutGPU(t *testing.T) {
	if n, err := cuda.Count(); err == nil && n > 0 {
		t.Skip("needs a machine without GPUs: with them all tests run")
	}
	lines, stderr, code := conformRun(t, "--plugin", plugin(t, "gpu"), "--run", "^(control|memory)/")
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, strings.Join(lines, "\n"), stderr)
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, " passed, 0 failed; ") || !strings.Contains(last, "not run: they need memory of a GPU") {
		t.Errorf("last line %q: want what passed, and what the rest needs", last)
	}
	if _, stderr, code := conformRun(t, "--plugin", plugin(t, "gpu"), "--device", "cuda"); code != 1 || !strings.Contains(stderr, "unavailable") {
		t.Errorf("--device cuda without a GPU: code %d, %s", code, stderr)
	}
}

// The back end that is built in is tested by its name, where no transport is.
func TestConformOfTheBuiltInDevice(t *testing.T) {
	library, err := emulated.Library(t.Context())
	if err != nil {
		t.Skip("no emulated driver: ", err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(emulated.EnvImages, t.TempDir())
	lines, stderr, code := conformRun(t, "--device", "cuda", "--run", "^(open|event)/", "--option", "memory=legacy")
	if code != 0 || !strings.HasSuffix(lines[len(lines)-1], " passed, 0 failed") || len(lines) < 10 {
		t.Errorf("exit code %d, %q, %s", code, lines, stderr)
	}
	if _, stderr, code := conformRun(t, "--device", "cuda", "--run", "^open/info", "--option", "memory=none"); code != 1 {
		t.Errorf("an option that is unknown: exit code %d, %s", code, stderr)
	}
	t.Setenv(cuda.EnvLibrary, "/does/not/exist/libcuda.so.1")
	if _, stderr, code := conformRun(t, "--device", "cuda"); code != 1 || !strings.Contains(stderr, "no NVIDIA driver") {
		t.Errorf("without a driver: exit code %d, %s", code, stderr)
	}
}

// The list has every test with its rule, and needs no plugin.
func TestConformList(t *testing.T) {
	lines, stderr, code := conformRun(t, "--list")
	if code != 0 || len(lines) < 100 {
		t.Fatalf("exit code %d, %d lines, %s", code, len(lines), stderr)
	}
	for _, want := range []string{"control/register-bad ", "port/segments ", "life/signals ", "descriptors/malformed "} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) && strings.HasSuffix(line, ".") }) {
			t.Errorf("no line with the rule of %s", want)
		}
	}
	lines, _, code = conformRun(t, "--list", "--run", "^life/", "--format", "json")
	var e struct{ Name, Rule string }
	if err := json.Unmarshal([]byte(lines[0]), &e); code != 0 || err != nil || !strings.HasPrefix(e.Name, "life/") || e.Rule == "" {
		t.Errorf("exit code %d, %v: %q", code, err, lines)
	}
}

// The plugin is tested as a program, too.
func TestConformOfTheProtocol(t *testing.T) {
	lines, stderr, code := conformRun(t, "--plugin", plugin(t, "good"), "--run", "^(start|life)/")
	all, _, _ := conformRun(t, "--list", "--run", "^(start|life)/")
	if code != 0 || len(lines) != len(all)+1 {
		t.Errorf("exit code %d\n%s\n%s", code, strings.Join(lines, "\n"), stderr)
	}
}

// docs/conformance.md names every test once or more, and none that does not exist.
func TestConformDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, _, _ := conformRun(t, "--list")
	exists, parts := map[string]bool{}, map[string]bool{}
	for _, line := range lines {
		name, _, _ := strings.Cut(line, " ")
		part, _, _ := strings.Cut(name, "/")
		exists[name], parts[part+"/"] = true, true
		whole := strings.Contains(string(text), "those of `"+part+"/`")
		if !whole && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("%s is in no row: which rule does it check?", name)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z]+/[a-z-]*)`").FindAllStringSubmatch(string(text), -1) {
		if !exists[m[1]] && !parts[m[1]] {
			t.Errorf("the page names %s, which is no test", m[1])
		}
	}
}
