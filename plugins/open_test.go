package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/promise"
	"github.com/mscclpp-go/mscclpp/plugins/internal/mirror"
)

func TestOpen(t *testing.T) {
	spec := self(t, "mirror")
	spec.Name = "mirror"
	spec.Options = map[string]any{"depth": 4, "spin": "1ms"}
	c := open(t, spec)
	direct, err := mirror.New(mirror.Config{Name: "mirror"})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := direct.Describe(t.Context())
	if !reflect.DeepEqual(c.Description(), want) {
		t.Errorf("description: got %+v, expected %+v", c.Description(), want)
	}
	if got := c.Schema(); !reflect.DeepEqual(got, SchemaOf[mirror.Config]()) || len(got) == 0 {
		t.Errorf("schema: got %v, expected %v", got, SchemaOf[mirror.Config]())
	}
	if c.ProtocolVersion() != 1 || c.Path() != spec.Path || c.PID() == os.Getpid() {
		t.Errorf("version %d, path %s, process %d", c.ProtocolVersion(), c.Path(), c.PID())
	}
	isEmpty(t, os.Getenv("XDG_RUNTIME_DIR")) // though the plugin runs
	if c.Err() != nil {
		t.Errorf("error of a running plugin: %v", c.Err())
	}

	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprint(f, "contents")
	r, err := c.Register(t.Context(), framework.Segment{Bytes: 1, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: f}}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Key.Close()
	if b, err := io.ReadAll(io.NewSectionReader(r.Key.Shares[0].FD, 0, 100)); err != nil || string(b) != "contents" {
		t.Errorf("descriptor that went there and back: %q, %v", b, err)
	}
}

func TestShutdown(t *testing.T) {
	c := open(t, self(t, "mirror"))
	pid := c.PID()
	watch := promise.Begin()
	if err := c.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := watch.Kept(exitBound); err != nil {
		t.Errorf("shutdown %v: the plugin had to be killed", err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	happens(t, c.Gone(), "Gone")
	if err := c.Err(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("got %v, expected ErrClosed", err)
	}
	if _, err := c.Describe(t.Context()); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("call after shutdown: got %v, expected ErrClosed", err)
	}
	if err := c.Shutdown(); err != nil {
		t.Errorf("second shutdown: %v", err)
	}
}

// A plugin that was named by its file alone is called by it.
func TestPluginWithoutAName(t *testing.T) {
	_, err := Open(t.Context(), Spec{Path: "/nowhere/plugin"})
	if err == nil || !strings.HasPrefix(err.Error(), "plugin /nowhere/plugin not found: ") {
		t.Errorf("%v, expected the file in the place of the name", err)
	}
}

func TestPluginThatCannotBeStarted(t *testing.T) {
	spec := func(role string) Spec { return self(t, role) }
	file := func(mode os.FileMode, text string) Spec {
		path := filepath.Join(t.TempDir(), "plugin")
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return Spec{Path: path}
	}
	pinned := spec("mirror")
	pinned.SHA256 = strings.Repeat("0", 64)
	cases := []struct {
		name   string
		spec   Spec
		reason Reason
		class  error
		text   string
	}{
		{"missing", Spec{Path: "/nowhere/plugin"}, Missing, framework.ErrUnavailable, "/nowhere/plugin"},
		{"folder", Spec{Path: t.TempDir()}, NotExecutable, framework.ErrUnavailable, "is a folder, expected a program"},
		{"not executable", file(0o644, ""), NotExecutable, framework.ErrUnavailable, "expected permission to execute"},
		{"no program", file(0o755, "neither a script nor a program"), NotExecutable, framework.ErrUnavailable, "exec format error"},
		{"other architecture", file(0o755, "\x7fELF\x02\x01\x01"), NotExecutable, framework.ErrUnavailable, "cannot be executed"},
		{"wrong checksum", pinned, Checksum, framework.ErrInvalid, "expected 0000"},
		{"junk", spec("junk"), Junk, framework.ErrPlugin, `"hello, world"`},
		{"long junk", spec("long junk"), Junk, framework.ErrPlugin, "xxx"},
		{"closed stdout", spec("mute"), Junk, framework.ErrPlugin, "before the handshake"},
		{"version 7", spec("version 7"), Protocol, framework.ErrPlugin, "speaks protocol version 7, expected 1"},
		{"handshake 2", spec("handshake 2"), Protocol, framework.ErrPlugin, "handshake version 2"},
		{"net/rpc", spec("net/rpc"), Protocol, framework.ErrPlugin, "expected grpc"},
		{"tcp", spec("tcp"), Protocol, framework.ErrPlugin, "expected a Unix socket"},
		{"nobody listens", spec("nobody"), Protocol, framework.ErrPlugin, "cannot be talked to"},
		{"silent", spec("silent"), Hung, framework.ErrPlugin, "before the handshake"},
		{"deaf", spec("deaf"), Hung, framework.ErrPlugin, "did not answer within"},
		{"stuck", spec("stuck"), Hung, framework.ErrPlugin, "did not answer within"},
		{"dies", spec("dies"), Died, framework.ErrPlugin, "exit status 7"},
		{"dies, last words", spec("dies"), Died, framework.ErrPlugin, "no such adapter"},
		{"signaled each time", spec("ended"), Died, framework.ErrPlugin, "signal: terminated"},
		{"panics", spec("panics"), Died, framework.ErrPlugin, "panic: boom"},
		{"no plugin", Spec{Path: "/bin/true"}, Died, framework.ErrPlugin, "exit status 0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			noneLeft(t)
			c.spec.Name, c.spec.Log = "acme", testLog(t)
			if c.reason == Hung {
				c.spec.StartTimeout = 300 * time.Millisecond
				if c.name != "silent" { // time enough for the handshake
					c.spec.StartTimeout = 5 * time.Second
				}
			}
			watch := promise.Begin()
			client, err := Open(t.Context(), c.spec)
			if err == nil {
				client.Shutdown()
				t.Fatal("was started")
			}
			if late := watch.Kept(3*time.Second + c.spec.StartTimeout); late != nil {
				t.Error(late)
			}
			var e *StartError
			if !errors.As(err, &e) {
				t.Fatalf("got %v, expected a StartError", err)
			}
			if e.Reason != c.reason || !errors.Is(err, c.class) || framework.Class(err) != c.class {
				t.Errorf("reason %q of class %v, expected %q and %v: %v", e.Reason, framework.Class(err), c.reason, c.class, err)
			}
			for _, want := range []string{c.text, "acme", c.spec.Path} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, expected it to contain %q", err, want)
				}
			}
		})
	}
}

func TestTransportThatObjects(t *testing.T) {
	mirrorWith := func(options map[string]any) Spec {
		s := self(t, "mirror")
		s.Options = options
		return s
	}
	named := self(t, "mirror")
	named.Name = "shm"
	odd := self(t, "mirror")
	odd.SHA256 = "abc"
	cases := []struct {
		name  string
		spec  Spec
		class error
		text  string
	}{
		{"unknown option", mirrorWith(map[string]any{"dephts": 1}), framework.ErrInvalid, `unknown option "dephts": did you mean "depth"?`},
		{"invalid option", mirrorWith(map[string]any{"depth": 0}), framework.ErrInvalid, "depth 0: expected 1 or more"},
		{"options that are no data", mirrorWith(map[string]any{"depth": func() {}}), framework.ErrInvalid, "options"},
		{"unavailable", self(t, "unavailable"), framework.ErrUnavailable, "no adapter in this machine"},
		{"other transport", named, framework.ErrInvalid, `contains transport "mirror"`},
		{"malformed checksum", odd, framework.ErrInvalid, "64 hexadecimal digits"},
		{"no path", Spec{Name: "x"}, framework.ErrInvalid, "no path"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			noneLeft(t)
			client, err := Open(t.Context(), c.spec)
			if err == nil {
				client.Shutdown()
			}
			var e *StartError
			if framework.Class(err) != c.class || errors.As(err, &e) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, expected %v with %q", err, c.class, c.text)
			}
		})
	}
}

func TestOpenCanceled(t *testing.T) {
	noneLeft(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	watch := promise.Begin()
	_, err := Open(ctx, self(t, "silent"))
	if late := watch.Kept(2 * time.Second); late != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v (%v), expected the caller's deadline", err, late)
	}
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	if _, err := Open(canceled, self(t, "mirror")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, expected context.Canceled", err)
	}
}

func TestChecksum(t *testing.T) {
	spec := self(t, "mirror")
	data, err := os.ReadFile(spec.Path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	spec.SHA256 = strings.ToUpper(hex.EncodeToString(sum[:]))
	open(t, spec)
}

func TestInspect(t *testing.T) {
	noneLeft(t)
	info, err := Inspect(t.Context(), self(t, "mirror"))
	if err != nil || info.Err != nil || info.Description.Name != "mirror" || info.ProtocolVersion != 1 || len(info.Schema) != 7 {
		t.Errorf("got %+v, %v", info, err)
	}
	info, err = Inspect(t.Context(), self(t, "unavailable"))
	if err != nil || !errors.Is(info.Err, framework.ErrUnavailable) || len(info.Schema) != 7 {
		t.Errorf("a transport that does not start: got %+v, %v", info, err)
	}
	if _, err := Inspect(t.Context(), self(t, "dies")); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("a plugin that dies: got %v", err)
	}
}
