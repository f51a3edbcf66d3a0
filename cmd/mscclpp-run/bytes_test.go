package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// overSSH are the flags of a job on one host, "over" a shell in place of ssh.
func overSSH(t *testing.T) []string {
	t.Helper()
	ssh := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\nshift\nexec sh -c \"$*\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"--host", "a", "--ssh", "/bin/sh " + ssh}
}

// The bytes of a rank are those that it has written: no end of a line is added to the last
// one or inside a long one, wherever the rank runs and wherever its output goes.
func TestBytesOfRanksPassUnchanged(t *testing.T) {
	const script = `head -c 200000 /dev/zero | tr '\000' x; printf '\nhalf\n\000\377 end'`
	want := strings.Repeat("x", 200000) + "\nhalf\n\x00\xff end"
	for name, flags := range map[string][]string{"here": nil, "over ssh": overSSH(t)} {
		for _, folder := range []bool{false, true} {
			if folder {
				flags = append(flags, "--tee", "--output-dir", t.TempDir())
			}
			code, out, errs := runs(command(t, append(flags, "-n", "1", "sh", "-c", script)...))
			if code != 0 || out != want || errs != "" {
				t.Errorf("%s, into files %v: code %d, %d bytes, expected %d: %s", name, folder, code, len(out), len(want), errs)
			}
			if !folder {
				continue
			}
			file, err := os.ReadFile(filepath.Join(flags[len(flags)-1], "rank-0.out"))
			if err != nil || string(file) != want {
				t.Errorf("%s: the file has %d bytes, expected %d: %v", name, len(file), len(want), err)
			}
		}
	}
}
