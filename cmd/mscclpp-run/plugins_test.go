package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/inspect"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// The verb plugins lists what was rejected and why. To be asked for a plugin that does not
// work is a failure, which names the reason.
func TestPluginsVerbNamesWhyOneIsRejected(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "mscclpp-transport-plain", "not a program")
	args := func(more ...string) []string {
		return append([]string{"--set", "plugins.dirs=" + dir, "plugins"}, more...)
	}
	code, out, errs := runs(command(t, args()...))
	if code != 0 || !strings.Contains(out, "plain") || !strings.Contains(out, "rejected") || !strings.Contains(out, "permission to execute") {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
	for _, more := range [][]string{{"plain"}, {"--options", "plain"}, {"--format", "json", "plain"}} {
		code, out, errs := runs(command(t, args(more...)...))
		if code != 1 || !strings.Contains(errs, "plain") || !strings.Contains(errs, "permission to execute") {
			t.Errorf("%v: code %d, %s: expected 1 and the reason", more, code, errs)
		}
		if more[0] == "--options" && strings.Contains(out, "DEFAULT") {
			t.Errorf("%v: %s: expected no empty table", more, out)
		}
	}
	code, out, errs = runs(command(t, args("plian")...))
	if code != 1 || out != "" || !strings.Contains(errs, `did you mean "plain"?`) {
		t.Errorf("code %d, %s, %s: expected the reason without an empty table", code, out, errs)
	}
	code, _, errs = runs(command(t, args("--format", "xml")...))
	if code != 2 || !strings.Contains(errs, "expected table or json") {
		t.Errorf("code %d, %s", code, errs)
	}
}

// A plugin that cannot start has no options to show: the reason takes their place.
func TestPluginsVerbStartsThem(t *testing.T) {
	for _, c := range []struct {
		kind         string
		code         int
		table, error string
	}{
		{"good", 0, "", ""},
		{"dies", 1, "no such library", "exit status 3"},
		{"absent", 1, "transport.loopback.depth", "no adapter in this machine"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Dir(plugin(t, c.kind))
			code, out, errs := runs(command(t, "--set", "plugins.dirs="+dir, "plugins", "--options", "loopback"))
			if code != c.code || !strings.Contains(out, c.table) || !strings.Contains(errs, c.error) {
				t.Errorf("--options: code %d, %s, %s: expected %d, %q, %q", code, out, errs, c.code, c.table, c.error)
			}
			code, out, errs = runs(command(t, "--set", "plugins.dirs="+dir, "plugins", "--format", "json", "loopback"))
			var line inspect.PluginLine
			if err := json.Unmarshal([]byte(out), &line); err != nil || code != c.code {
				t.Fatalf("json: code %d, %v: %s, %s", code, err, out, errs)
			}
			if line.Name != "loopback" || line.Used != (c.code == 0) || !strings.Contains(line.Error, c.error) || (line.Error == "") != (c.code == 0) {
				t.Errorf("json: %s", out)
			}
			if (line.Protocol == 1) != (c.kind != "dies") || (len(line.Options) == 1) != (c.kind == "absent") {
				t.Errorf("json: %s: expected what the plugin has answered", out)
			}
			if c.code == 0 && (len(line.Channels) == 0 || line.Signal == "" || len(line.Needs) == 0 || line.Version == "") {
				t.Errorf("json: %s: expected the whole description", out)
			}
		})
	}
}

// put writes a file into a folder.
func put(t *testing.T, root, path, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Nothing is left of a plugin that needs a folder for its socket when its job is killed in
// the start, be it the launcher alone.
func TestJobKilledInTheStartOfAPlugin(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, plugins.FilePrefix+"loopback"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			run, err := os.MkdirTemp("/tmp", "run")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(run)
			left := func() int {
				entries, err := os.ReadDir(run)
				if err != nil {
					t.Error(err)
				}
				return len(entries)
			}
			c := command(t, "--set", "plugins.dirs="+dir, "--set", "transports=loopback", "-n", "2", "check")
			c.Env = append(c.Env, "XDG_RUNTIME_DIR="+run, patientStart)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, setUpBound, "two ranks start the plugin", func() bool { return left() == 2 })
			_ = c.Process.Signal(s)
			_ = c.Wait()
			eventually(t, setUpBound, "nothing is left", func() bool { return left() == 0 })
		})
	}
}
