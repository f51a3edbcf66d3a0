package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/leaktest"
	"github.com/mscclpp-go/mscclpp/internal/socketdir"
	"github.com/mscclpp-go/mscclpp/plugins/internal/mirror"
)

// roleKey makes this test binary something else than a test: a plugin, a broken
// plugin, or a host. Of the variables of a host it is passed on.
const roleKey = "MSCCLPP_TEST_ROLE"

// endedKey names a folder by which a plugin knows that it has been started before.
const endedKey = "MSCCLPP_TEST_ENDED"

// raceExit keeps the race detector from sleeping for a second in a plugin's exit.
const raceExit = "GORACE=atexit_sleep_ms=0"

var roles = map[string]func(){
	"mirror": func() { Serve(mirror.New) },
	"junk": func() {
		fmt.Println("hello, world")
		forever()
	},
	"long junk": func() {
		fmt.Print(strings.Repeat("x", 3*maxHandshake))
		forever()
	},
	"silent": forever,
	"mute": func() {
		os.Stdout.Close()
		forever()
	},
	"deaf": func() { // shakes hands and never answers
		fmt.Println("1|1|unix|inherited|grpc")
		forever()
	},
	"listens": func() { // in the folder, as plugins in other languages do
		os.Unsetenv(connectionKey)
		Serve(mirror.New)
	},
	"ended once": func() { // by a signal for the job, and not when it is started again
		if os.Mkdir(os.Getenv(endedKey), 0o700) == nil {
			signal.Reset(unix.SIGTERM)
			unix.Kill(os.Getpid(), unix.SIGTERM)
			forever()
		}
		Serve(mirror.New)
	},
	"ended": func() {
		signal.Reset(unix.SIGTERM) // which shells do not ignore for programs in the background
		unix.Kill(os.Getpid(), unix.SIGTERM)
		forever()
	},
	"signaled early": func() {
		for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
			unix.Kill(os.Getpid(), s)
		}
		Serve(mirror.New)
	},
	"nobody": func() { // shakes hands and does not listen
		fmt.Println("1|1|unix|/nowhere|grpc")
		forever()
	},
	"stuck": func() {
		Serve(func(mirror.Config) (framework.Transport, error) { select {} })
	},
	"dies": func() {
		fmt.Fprintln(os.Stderr, "no such adapter")
		os.Exit(7)
	},
	"panics": func() {
		Serve(func(mirror.Config) (framework.Transport, error) { panic("boom") })
	},
	"version 7": func() {
		fmt.Println("1|7|unix|/nowhere|grpc")
		forever()
	},
	"handshake 2": func() {
		fmt.Println("2|1|unix|/nowhere|grpc")
		forever()
	},
	"net/rpc": func() {
		fmt.Println("1|1|unix|/nowhere")
		forever()
	},
	"tcp": func() {
		fmt.Println("1|1|tcp|127.0.0.1:1|grpc")
		forever()
	},
	"unavailable": func() {
		Serve(func(mirror.Config) (framework.Transport, error) {
			return nil, fmt.Errorf("%w: no adapter in this machine", framework.ErrUnavailable)
		})
	},
	"noisy": func() {
		Serve(func(c mirror.Config) (framework.Transport, error) {
			unix.Write(1, []byte("from C\n"))
			fmt.Println("from fmt")
			fmt.Fprintln(os.Stderr, "from stderr")
			slog.Warn("from slog", "answer", 42)
			slog.Debug("details")
			return mirror.New(c)
		})
	},
	"reports": func() {
		Serve(func(c mirror.Config) (framework.Transport, error) {
			stdin, _ := os.Readlink("/proc/self/fd/0")
			dir, _ := Folder()
			kernels, _ := os.ReadFile(dir + "/kernels")
			slog.Info("report", "kernels", string(kernels), "stdin", stdin, "group", unix.Getpgrp() == os.Getpid(), "env", strings.Join(os.Environ(), " "), "host", Host())
			return mirror.New(c)
		})
	},
	"has a child": func() {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), roleKey+"=silent")
		child.Stdout, child.Stderr = os.Stderr, os.Stderr // keeps our pipe
		if err := child.Start(); err != nil {
			panic(err)
		}
		slog.Error("child", "id", child.Process.Pid)
		fmt.Fprintln(os.Stderr, "child", child.Process.Pid)
		Serve(mirror.New)
	},
	"slow to close": func() {
		Serve(func(c mirror.Config) (framework.Transport, error) {
			t, err := mirror.New(c)
			return slowToClose{t}, err
		})
	},
	"hangs up": func() {
		Serve(func(c mirror.Config) (framework.Transport, error) {
			t, err := mirror.New(c)
			return hangsUp{t}, err
		})
	},
	"ignores SIGCHLD": func() {
		signal.Ignore(unix.SIGCHLD)
		killed()
	},
	"reaps all children": func() {
		ends := make(chan os.Signal, 16)
		signal.Notify(ends, unix.SIGCHLD)
		go func() {
			for range ends {
				for pid := 1; pid > 0; {
					pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
				}
			}
		}()
		killed()
	},
	"sweep": socketdir.Sweep,
	// A host that starts the plugin in roleKey+"_PLUGIN", says so and waits.
	"host": func() {
		plugin := os.Getenv(roleKey + "_PLUGIN")
		if plugin == "listens" {
			callsServe = func(io.ReaderAt) bool { return false }
		}
		c, err := Open(context.Background(), Spec{Path: "/proc/self/exe", Env: []string{roleKey + "=" + plugin, raceExit}, StartTimeout: hang})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("plugin", c.PID())
		forever()
	},
}

// killed is a host whose plugin, which has left a child behind, is killed. It prints what
// the client knows of that.
func killed() {
	log := &buffer{}
	c, err := Open(context.Background(), Spec{Path: "/proc/self/exe", Env: []string{roleKey + "=has a child", raceExit}, Log: logTo(log), StartTimeout: hang})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	unix.Kill(c.PID(), unix.SIGKILL)
	<-c.Gone()
	fmt.Println("gone:", c.Err())
	c.Shutdown()
	fmt.Println(log.String())
}

// forever waits for a signal that kills.
func forever() {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGUSR1)
	for range ignored {
	}
}

type slowToClose struct{ framework.Transport }

func (slowToClose) Shutdown() error { select {} }

// hangsUp closes its control socket when asked to Listen.
type hangsUp struct{ framework.Transport }

func (hangsUp) Listen(context.Context, framework.EndpointConfig) (framework.Endpoint, error) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		var fd int
		fmt.Sscan(e.Name(), &fd)
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && kind == unix.SOCK_SEQPACKET {
			unix.Shutdown(fd, unix.SHUT_WR)
		}
	}
	return framework.Endpoint{}, errors.New("hung up")
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" {
		run := roles[role]
		if run == nil {
			fmt.Fprintln(os.Stderr, "no such role:", role)
			os.Exit(3)
		}
		run()
		os.Exit(0)
	}
	leaktest.Main(m)
}

// self is a Spec that starts this test binary in a role.
func self(t *testing.T, role string) Spec {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Path: path, Env: []string{roleKey + "=" + role, raceExit}, Log: testLog(t), StartTimeout: hang}
}

func open(t *testing.T, spec Spec) *Client {
	t.Helper()
	noneLeft(t)
	c, err := Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Shutdown() })
	return c
}

// noneLeft checks, when the test ends, that descriptors, goroutines and socket
// folders are as before.
func noneLeft(t *testing.T) {
	t.Helper()
	runtimeDir(t)
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		limit := time.Now().Add(hang)
		err := goleak.Find(ignore)
		for ; err != nil && time.Now().Before(limit); err = goleak.Find(ignore) {
		}
		if err != nil {
			t.Errorf("goroutines left: %v", err)
		}
		for deadline := time.Now().Add(hang); count() > before; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Errorf("%d descriptors open, expected %d", count(), before)
				break
			}
		}
	})
}

// runtimeDir gives the test a folder of its own for sockets, and checks that it is
// empty at the end.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Cleanup(func() {
		isEmpty(t, dir)
		os.RemoveAll(dir)
	})
	return dir
}

func isEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left in %s: %v %v", dir, entries, err)
	}
}

// hang is longer than anything here takes, on a busy machine as well.
const hang = 3 * time.Minute

// happens fails the test unless done is closed.
func happens(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(hang):
		t.Errorf("%s did not happen within %v", what, hang)
	}
}
