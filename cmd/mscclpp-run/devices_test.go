package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/apart"
)

// ofMaker is a configuration that brings the two devices of a table for tests, changed by macros.
func ofMaker(t *testing.T, more string, defines ...string) (file string) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("needs a C compiler")
	}
	dir, native := t.TempDir(), "../../framework/device/native/"
	args := append([]string{"-std=gnu11", "-fPIC", "-shared", "-I" + native + "include", "-DCODE=0", "-o", filepath.Join(dir, "libacme.so"), native + "testdata/table.c"}, defines...)
	if text, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, text)
	}
	file = filepath.Join(dir, "job.yaml")
	text := more + "devices: {acme: {path: " + dir + "/libacme.so, transports: [acmelink]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// One rank for each device counts those that a configuration brings, in a process that is not the launcher.
func TestRanksForEachDeviceOfAMaker(t *testing.T) {
	const three = "-DCOUNT=3"
	for name, c := range map[string]struct {
		more    string
		defines []string
		ranks   int
		text    string
	}{
		"by name":                {"device: acme\n", []string{three}, 3, ""},
		"one of them":            {"device: acme:1\n", []string{three}, 3, ""},
		"none of that maker":     {"device: acme\n", []string{"-DCOUNT=0"}, 0, "device acme: none is visible"},
		"a table of another one": {"device: acme\n", []string{`-DTYPE="other"`, `-DKIND="other-handle"`}, 0, "back end for devices of type other"},
		"a table that talks":     {"device: acme\n", []string{`-DCOUNT=(write(1,"hello",5)-3)`, "-include", "unistd.h"}, 0, "a back end prints nothing"},
		"a table that crashes":   {"device: acme\n", []string{"-DCOUNT=(abort(),2)", "-include", "stdlib.h"}, 0, "exit status 2: SIGABRT: abort"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := runs(command(t, "--config", ofMaker(t, c.more, c.defines...), "--nproc-per-node", "gpu", "--", "echo", "rank"))
			if n := strings.Count(out, "rank\n"); n != c.ranks || (code == 0) != (c.ranks > 0) || !strings.Contains(errs, c.text) {
				t.Errorf("code %d, %d ranks, %s: expected %d, %q", code, n, errs, c.ranks, c.text)
			}
		})
	}
}

// A back end that hangs keeps no process beyond its time.
func TestBackEndThatHangs(t *testing.T) {
	file := ofMaker(t, "", "-DCOUNT=(pause(),2)", "-include", "unistd.h")
	question := `{"Type": "acme", "Backend": {"Path": "` + filepath.Dir(file) + `/libacme.so"}, "Limit": 100000000}`
	if code, out, errs := runs(command(t, apart.Flag, "--", question)); code != 1 || !strings.Contains(errs, "the back end has not answered within 100ms") {
		t.Errorf("code %d, %q, %s: expected an end after its limit", code, out, errs)
	}
}

// Nor does it keep one whose launcher was killed.
func TestBackEndThatHangsWithoutLauncher(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive") // its reader sees the end once no process has it open
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	c := command(t, "--config", ofMaker(t, "device: acme\n", `-DCOUNT=(write(open("`+alive+`",1),"x",1),pause(),2)`, "-include", "unistd.h", "-include", "fcntl.h"), "--nproc-per-node", "gpu", "--", "true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait()
		if f, err := os.OpenFile(alive, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close() // a launcher that ends early keeps no reader waiting
		}
	}()
	f, err := os.Open(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Read(make([]byte, 1)); n != 1 {
		t.Errorf("%v: expected that the back end begins", err)
	}
	_ = c.Process.Kill()
	if err := f.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil { // the back end's own limit is a minute
		t.Fatal(err)
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d bytes, %v: expected that the process with the back end ends", n, err)
	}
	<-ended
}

// doctor shows the devices that a configuration brings, and text that jobs cannot run which are to be on such a device.
func TestDoctorOnDevicesOfAMaker(t *testing.T) {
	_, out, errs := runs(command(t, "--config", ofMaker(t, "device: acme\n"), "doctor"))
	for _, want := range []string{"ok    acme devices   2 of ", "acme1; links join 0 of 1 pairs", "on acme [acmelink]", "FAIL  plugin acmelink"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s%s: expected %q", out, errs, want)
		}
	}
	_, out, errs = runs(command(t, "--config", ofMaker(t, "device: acme\n", "-DCOUNT=(abort(),2)", "-include", "stdlib.h"), "doctor"))
	for _, want := range []string{"FAIL  acme devices", "exit status 2: SIGABRT: abort", "FAIL  plugin acmelink", "ok    version"} {
		if !strings.Contains(out, want) {
			t.Errorf("a back end that crashes: %s%s: expected %q", out, errs, want)
		}
	}
	for more, want := range map[string]string{"device: acme\n": "FAIL  acme devices", "": "warn  acme devices"} {
		if _, out, errs := runs(command(t, "--config", ofMaker(t, more, "-DCOUNT=0"), "doctor")); !strings.Contains(out, want) || !strings.Contains(out, "none is visible") {
			t.Errorf("%s%s: expected %q", out, errs, want)
		}
	}
}
