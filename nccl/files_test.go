package nccl

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

// joins has ranks join, rank r with the variables of own[r], and returns their lines: the code and the last error.
func joins(t *testing.T, id *bootstrap.UniqueID, own ...[]string) []string {
	t.Helper()
	program := compile(t, "join.c")
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	out := make([]string, len(own))
	var all sync.WaitGroup
	for r, variables := range own {
		all.Go(func() {
			c := exec.CommandContext(ctx, program)
			c.Env = append(environ(t, variables...), fmt.Sprintf("TEST_RANK=%d", r), fmt.Sprintf("TEST_SIZE=%d", len(own)))
			if id != nil {
				c.Env = append(c.Env, "TEST_ID="+hex.EncodeToString(id[:]))
			}
			text, err := c.Output()
			out[r] = string(text)
			if err != nil {
				t.Errorf("rank %d: %v\n%s", r, err, text)
			}
		})
	}
	all.Wait()
	return out
}

// expectAll expects the code and a part of the text of all ranks.
func expectAll(t *testing.T, said []string, code int, part string) {
	t.Helper()
	for r, s := range said {
		if !strings.HasPrefix(s, fmt.Sprint(code, " ")) || !strings.Contains(s, part) {
			t.Errorf("rank %d prints %q, expected code %d and %q", r, s, code, part)
		}
	}
}

// copyFile makes to the same file as from, or a copy where that cannot be.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if os.Link(from, to) == nil {
		return
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A library that is missing, or not the one that belongs here, is named in one line.
func TestLibraryFiles(t *testing.T) {
	lib := library(t)
	const file = "libmscclpp.so.1"
	for name, c := range map[string]struct {
		version string // of libnccl.so.2
		make    func(t *testing.T, path string)
		code    int
		part    string
	}{
		"missing": {make: func(*testing.T, string) {}, code: 2, part: "cannot open libmscclpp.so.1, which belongs to DIR/libnccl.so.2: "},
		"of another build": {version: "other", make: func(t *testing.T, path string) { copyFile(t, lib+"/"+file, path) }, code: 2,
			part: ": expected other, with which this libnccl.so.2 was built"},
		"of somebody else": {make: func(t *testing.T, path string) {
			c := exec.Command("cc", "-shared", "-x", "c", "-o", path, "-")
			c.Stdin = strings.NewReader("const char *mscclpp_version(void) { return \"devel\"; }\n")
			run(t, c)
		}, code: 2, part: "DIR/libmscclpp.so.1 has no function mscclpp_last_error"},
		"no library": {make: func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("nothing\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, code: 2, part: "DIR/libmscclpp.so.1: "},
		"without plugins": {make: func(t *testing.T, path string) { copyFile(t, lib+"/"+file, path) }, code: 2,
			part: "transport \"shm\": no plugin is found at all: expected a file mscclpp-transport-shm in a folder of plugins.dirs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.version == "" {
				copyFile(t, lib+"/libnccl.so.2", dir+"/libnccl.so.2")
			} else {
				build := exec.Command("../scripts/nccl.sh", dir)
				build.Env = append(os.Environ(), "VERSION="+c.version)
				run(t, build)
			}
			c.make(t, filepath.Join(dir, file))
			said := joins(t, nil, []string{"LD_PRELOAD=" + dir + "/libnccl.so.2"})
			expectAll(t, said, c.code, strings.ReplaceAll(c.part, "DIR", dir))
			if strings.Count(said[0], "\n") != 1 {
				t.Errorf("it prints more than a line: %q", said[0])
			}
		})
	}
}

// A plugin that is killed is a system error for its rank and a remote error for the others, and is named.
func TestPluginKilled(t *testing.T) {
	t.Parallel()
	said := alone(t, "plugin.c")
	said = said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]
	if said[0] != '2' && said[0] != '6' || !strings.Contains(said, "shm plugin of rank ") || !strings.Contains(said, "signal: killed") {
		t.Errorf("it printed %q, expected code 2 or 6 and the plugin's name", said)
	}
}

// Ranks of different versions refuse each other.
func TestVersionsDiffer(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	expectAll(t, joins(t, &m.ids[0], nil, []string{"MSCCLPP_NCCL_VERSION=2.27.5"}), 5,
		"Mismatched NCCL version detected : comm join: unsupported: versions differ: rank 0 version 22809 (devel) rank 1 version 22705 (devel)")
}

// An id serves one job, and its maker has to live until all have joined.
func TestIDTwiceAndLate(t *testing.T) {
	t.Parallel()
	m := newMaker(t, "2")
	expectAll(t, joins(t, &m.ids[0], nil, nil), 0, "")
	expectAll(t, joins(t, &m.ids[0], nil, nil), 4, "an id serves one job")
	if err := m.end(); err != nil {
		t.Error(err)
	}
	expectAll(t, joins(t, &m.ids[1], nil, nil), 6, "the process that made the unique id does not answer")
}

// freePort finds a port that the system gives to nobody who asks for any.
func freePort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skipf("this host has no address %s: %v", host, err)
	}
	_ = l.Close()
	for {
		port := fmt.Sprint(10000 + rand.IntN(20000))
		if l, err := net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
			_ = l.Close()
			return port
		}
	}
}

// NCCL_COMM_ID is where rank 0 listens; every rank makes the id itself.
func TestCommID(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ host, listens string }{{"127.0.0.1", "127.0.0.1"}, {"localhost", "localhost"}, {"[::1]", "::1"}} {
		t.Run(at.host, func(t *testing.T) {
			variables := []string{"TEST_OWN_ID=1", "NCCL_COMM_ID=" + at.host + ":" + freePort(t, at.listens)}
			expectAll(t, joins(t, nil, variables, variables), 0, "")
		})
	}
	for _, wrong := range []string{"nohost", ":", "127.0.0.1:", "256.1.1.1.1:x"} {
		c := exec.Command(compile(t, "id.c"))
		c.Env = environ(t, "NCCL_COMM_ID="+wrong)
		text, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(text), "NCCL_COMM_ID is \""+wrong+"\"") {
			t.Errorf("%q: %v: %s", wrong, err, text)
		}
	}
}
