package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

func environment(pairs ...string) func(string) string {
	m := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		m[k] = v
	}
	return func(k string) string { return m[k] }
}

func secretFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFromEnv(t *testing.T) {
	id := newID(t)
	c, err := FromEnv(environment("RANK=2", "WORLD_SIZE=4", EnvUniqueID+"="+id.String(), EnvHostID+"=h", EnvInterface+"=eth0", EnvFamily+"=AF_INET6", "MASTER_ADDR=ignored"))
	if err != nil || c.Rank != 2 || c.Size != 4 || c.ID != id || c.HostID != "h" || c.Interface != "eth0" || c.Family != IPv6 || c.Addr != "" {
		t.Errorf("%+v, %v", c, err)
	}
	file := secretFile(t, "a secret of many bytes\n", 0o600)
	c, err = FromEnv(environment("RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=::1", "MASTER_PORT=29500", EnvSecretFile+"="+file, EnvJob+"=17"))
	if err != nil || c.Addr != "[::1]:29500" || string(c.Secret) != "a secret of many bytes" || c.Job != "17" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestFromEnvRejects(t *testing.T) {
	pipe, huge := filepath.Join(t.TempDir(), "pipe"), secretFile(t, "", 0o600)
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Truncate(huge, maxSecretFile+1)); err != nil {
		t.Fatal(err)
	}
	place := []string{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1"}
	with := func(more ...string) []string { return append(append([]string{}, place...), more...) }
	for name, c := range map[string]struct {
		env    []string
		wanted string
	}{
		"nothing":           {nil, EnvRank},
		"no size":           {[]string{"RANK=0"}, EnvSize},
		"negative":          {[]string{"RANK=-1"}, "-1"},
		"no place":          {place[:2], EnvUniqueID},
		"no port":           {place[:3], EnvPort},
		"bad port":          {append(place[:3:3], "MASTER_PORT=99999"), "99999"},
		"bad id":            {with(EnvUniqueID + "=x"), EnvUniqueID},
		"no secret file":    {with(EnvSecretFile + "=/does/not/exist"), "/does/not/exist"},
		"short secret":      {with(EnvSecretFile + "=" + secretFile(t, "short\n", 0o600)), "at least 16"},
		"writable secret":   {with(EnvSecretFile + "=" + secretFile(t, "a secret of many bytes", 0o666)), "written by others"},
		"secret of a pipe":  {with(EnvSecretFile + "=" + pipe), "expected a regular file"},
		"huge secret":       {with(EnvSecretFile + "=" + huge), "expected a regular file of at most"},
		"listener no digit": {with(EnvListenFD + "=x"), EnvListenFD},
		"listener stdin":    {with(EnvListenFD + "=0"), EnvListenFD},
		"listener nowhere":  {with(EnvListenFD + "=19999"), "no socket"},
		"family":            {with(EnvFamily + "=AF_UNIX"), EnvFamily},
	} {
		_, err := FromEnv(environment(c.env...))
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.wanted) {
			t.Errorf("%s: %v, expected ErrInvalid that says %q", name, err, c.wanted)
		}
	}
}

// inheritable returns a number as a child would find it.
func inheritable(t *testing.T, f interface{ File() (*os.File, error) }) int {
	t.Helper()
	file, err := f.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestInheritedListener(t *testing.T) {
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fd := inheritable(t, l)
	_ = l.Close()
	base := []string{"WORLD_SIZE=2", EnvUniqueID + "=" + id.String(), fmt.Sprintf("%s=%d", EnvListenFD, fd)}
	done := make(chan error, 2)
	for r := range 2 {
		c, err := FromEnv(environment(append(base, fmt.Sprint("RANK=", r))...))
		if err != nil {
			t.Fatal(err)
		}
		if (c.Listener != nil) != (r == 0) {
			t.Fatalf("rank %d: listener %v", r, c.Listener)
		}
		go func() {
			b, err := Join(bounded(t, patience), c)
			if err == nil {
				err = b.Close()
			}
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The launcher keeps a copy of the listener. The process that it started itself ends
// that as well, so that ranks that come later are refused; one that a script started
// leaves it to the next.
func TestKeptListenerEndsWithTheJob(t *testing.T) {
	for keeper, refuses := range map[int]bool{os.Getppid(): true, os.Getpid(): false} {
		l, id, err := Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // the copy
		env := []string{"WORLD_SIZE=2", EnvUniqueID + "=" + id.String(), fmt.Sprintf("%s=%d", EnvListenFD, inheritable(t, l)), fmt.Sprintf("%s=%d", EnvKeeper, keeper)}
		done := make(chan error, 2)
		for r := range 2 {
			c, err := FromEnv(environment(append(env, fmt.Sprint("RANK=", r))...))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				b, err := Join(bounded(t, patience), c)
				if err == nil {
					err = b.Close()
				}
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) != refuses || (err == nil) == refuses {
			t.Errorf("kept by process %d, of %d: after the job a connection ends with %v, expected that it is refused: %v", keeper, os.Getpid(), err, refuses)
		}
	}
}

// A listener is taken once. Any later descriptor with its number is not touched.
func TestListenerIsTakenOnce(t *testing.T) {
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fd := inheritable(t, l)
	_ = l.Close()
	env := environment("RANK=0", "WORLD_SIZE=2", EnvUniqueID+"="+id.String(), fmt.Sprintf("%s=%d", EnvListenFD, fd))
	c, err := FromEnv(env)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Listener.Close()
	again := func(wanted string) {
		t.Helper()
		c, err := FromEnv(env)
		if err == nil {
			_ = c.Listener.Close()
		}
		if err := wantError(err, framework.ErrInvalid, framework.NoPeer, wanted, "expected the listener at "+id.Addresses()[0].String(), "once"); err != nil {
			t.Error(err)
		}
	}
	again("no socket")
	// The number has a new owner, of every kind that is easily confused.
	if err := unix.Dup3(1, fd, unix.O_CLOEXEC); err != nil { // until then
		t.Fatal(err)
	}
	stranger, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	own := inheritable(t, stranger)
	defer unix.Close(own)
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	conn, err := net.Dial("tcp", stranger.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	connected := inheritable(t, conn.(*net.TCPConn))
	defer unix.Close(connected)
	for wanted, from := range map[string]int{"it listens at port": own, "it is no socket": pipe[0], "does not listen": connected} {
		if err := unix.Dup3(from, fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		again(wanted)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("%s: what has the number now was closed: %v", wanted, err)
		}
	}
	_ = unix.Close(fd)
}

func TestWrongListeners(t *testing.T) {
	u, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@mscclpp-test-" + fmt.Sprint(os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	fd := inheritable(t, u)
	defer unix.Close(fd) // it was not taken
	_, err = FromEnv(environment("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1", fmt.Sprintf("%s=%d", EnvListenFD, fd)))
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "expected tcp") {
		t.Errorf("a unix listener: %v", err)
	}
	l, _, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Join(bounded(t, patience), Config{Size: 2, ID: newID(t), Listener: l})
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "the unique id has") {
		t.Errorf("a listener at another port: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error("a failed Join must close the listener")
	}
}

func TestConfigRejects(t *testing.T) {
	id := newID(t)
	for name, c := range map[string]Config{
		"no ranks":        {ID: id},
		"too many":        {Size: MaxRanks + 1, ID: id},
		"rank too high":   {Rank: 2, Size: 2, ID: id},
		"nowhere":         {Size: 2},
		"no port":         {Size: 2, Addr: "host"},
		"short secret":    {Size: 2, Addr: "host:1", Secret: []byte("short")},
		"damaged id":      {Size: 2, ID: UniqueID{1}},
		"timeout":         {Size: 2, ID: id, Timeout: -1},
		"heartbeat":       {Size: 2, ID: id, Heartbeat: time.Millisecond},
		"listener":        {Rank: 1, Size: 2, ID: id, Listener: closedListener(t)},
		"interface":       {Rank: 1, Size: 2, Addr: rootOf(t), Interface: "no such interface"},
		"interface range": {Rank: 1, Size: 2, Addr: rootOf(t), Interface: "203.0.113.0/24"},
	} {
		if _, err := Join(bounded(t, patience), c); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v, expected ErrInvalid", name, err)
		}
	}
}

func closedListener(t *testing.T) net.Listener {
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l
}

// rootOf starts a rank 0 that waits for another one.
func rootOf(t *testing.T) string {
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = Join(ctx, Config{Size: 2, Addr: l.Addr().String(), Listener: l})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l.Addr().String()
}

func TestInterfaces(t *testing.T) {
	for _, which := range []string{"lo", "127.0.0.0/8"} {
		ranks := joinAll(t, 3, func(c *Config) { c.Interface = which })
		for _, b := range ranks {
			if !strings.HasPrefix(b.Addr(), "127.0.0.1:") {
				t.Errorf("%s: listens at %s", which, b.Addr())
			}
		}
	}
}
