package protocoltest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
)

func (s *suite) startTests() []transporttest.Test {
	return []transporttest.Test{
		{Name: "start/by-a-person", Rule: "Without the cookie the program says on descriptor 2 what it is, and exits with 2.", Body: s.byAPerson},
		{Name: "start/handshake", Rule: "The first line is the handshake; the socket is in the folder of the host, its path under 108 bytes.", Body: s.handshake},
		{Name: "start/versions", Rule: "The plugin chooses the highest common version, and prints its lowest if there is none.", Body: s.versions},
		{Name: "start/standard-output", Rule: "Descriptor 1 is moved out of the way: what libraries print goes to the log.", Body: s.standardOutput},
		{Name: "start/inherited", Rule: "The plugin serves the connection that it inherits, or listens at the given place.", Body: s.inheritedConnection},
		{Name: "start/pinned", Rule: "Files beside the program are found by MSCCLPP_PLUGIN_FOLDER: what is executed may be a copy.", Body: s.pinned},
		{Name: "start/close-on-exec", Rule: "The control socket has close-on-exec: a child would hide the plugin's death.", Body: s.closeOnExec},
	}
}

func (s *suite) byAPerson(t transporttest.TB) {
	for what, env := range map[string]string{"no cookie": "LANG=C", "another cookie": "MSCCLPP_TRANSPORT_PLUGIN=please"} {
		h := s.launched(t, startMode{}, env, "PLUGIN_PROTOCOL_VERSIONS=1")
		if _, ended := h.ends(startBound); !ended {
			t.Errorf("%s: the program runs on after %v", what, startBound)
			continue
		}
		_ = h.stdout.SetReadDeadline(time.Now().Add(h.limit))
		printed, err := io.ReadAll(h.stdout)
		if code := h.cmd.ProcessState.ExitCode(); code != 2 || h.log.last(1) == "" {
			t.Errorf("%s: %s: want exit status 2 and a word of explanation on descriptor 2", what, h.status())
		}
		if err != nil || len(printed) > 0 {
			t.Errorf("%s: %.120q on descriptor 1, %v: want nothing", what, printed, err)
		}
	}
}

func (s *suite) handshake(t transporttest.TB) {
	h := s.started(t)
	address, err := addressIn(h.line)
	if err != nil || !strings.HasPrefix(h.line, "1|1|") {
		t.Fatalf("the first line is %.200q: want 1|1|unix|address|grpc", h.line)
	}
	if len(address) >= 108 {
		t.Errorf("the path of the socket has %d bytes: want less than 108", len(address))
	}
	if rel, err := filepath.Rel(h.dir, address); err != nil || strings.HasPrefix(rel, "..") {
		t.Errorf("the socket %s is outside of PLUGIN_UNIX_SOCKET_DIR, %s", address, h.dir)
	}
	if info, err := os.Stat(address); err != nil || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("%s is no socket after the handshake: %v", address, err)
	}
}

func (s *suite) versions(t transporttest.TB) {
	for versions, want := range map[string]string{"1,2,99": "1", "99": ""} {
		h := s.started(t, "PLUGIN_PROTOCOL_VERSIONS="+versions)
		_, rest, _ := strings.Cut(h.line, "|")
		version, _, _ := strings.Cut(rest, "|")
		if n, err := strconv.Atoi(version); err != nil || n < 1 || want != "" && version != want {
			t.Errorf("of the versions %s the plugin chose %q, in the handshake %q", versions, version, h.line)
		}
	}
}

func (s *suite) standardOutput(t transporttest.TB) {
	h := s.started(t)
	out, err := os.Readlink(h.proc("fd/1"))
	if err != nil {
		t.Fatalf("look at descriptor 1 of the plugin: %v", err)
	}
	if log, err := os.Readlink(h.proc("fd/2")); err != nil || out != log {
		t.Errorf("descriptor 1 is %s and descriptor 2 is %s, %v: want the same pipe", out, log, err)
	}
}

// inheritedConnection and pinned are ways to start that a host chooses.

func (s *suite) inheritedConnection(t transporttest.TB) {
	h := s.startedBy(t, startMode{connected: true})
	h.dial()
	h.configure(t, s.launcher)
}

func (s *suite) pinned(t transporttest.TB) {
	h := s.startedBy(t, startMode{copied: true})
	h.dial()
	h.configure(t, s.launcher)
}

func (s *suite) closeOnExec(t transporttest.TB) {
	h := s.started(t)
	control, err := os.Readlink(h.proc("fd/3"))
	if errors.Is(err, os.ErrNotExist) {
		return // moved to another number: then the plugin cared
	}
	if err != nil {
		t.Fatalf("look at descriptor 3 of the plugin: %v", err)
	}
	list, err := os.ReadDir(h.proc("fd"))
	if err != nil {
		t.Fatalf("look at the descriptors of the plugin: %v", err)
	}
	for _, e := range list {
		if to, err := os.Readlink(h.proc("fd/" + e.Name())); err != nil || to != control {
			continue
		}
		text, err := os.ReadFile(h.proc("fdinfo/" + e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if flags := flagsIn(string(text)); flags&unix.O_CLOEXEC == 0 {
			t.Errorf("descriptor %s, the control socket, has flags %#o: want close-on-exec", e.Name(), flags)
		}
	}
}

// flagsIn reads the line "flags:" of a file in fdinfo.
func flagsIn(text string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "flags:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 8, 64)
			return n
		}
	}
	return 0
}
