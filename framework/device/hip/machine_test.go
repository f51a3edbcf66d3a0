package hip

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
)

// Kinds of messages, as package internal/gfx/gpus has them, and where a message has its number.
const (
	kindCode, kindAlive, kindResult = 2, 8, 101
	headerBytes, idAt               = 72, 16
)

// machine listens where code objects would be executed. It accepts the first code object when it was asked so many times whether it is alive;
// 0: it answers nothing.
func machine(t *testing.T, beats int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := l.AcceptUnix()
		if err != nil {
			return // no process has come
		}
		defer conn.Close()
		answer := func(id uint64) {
			b := make([]byte, headerBytes)
			binary.LittleEndian.PutUint32(b, kindResult)
			binary.LittleEndian.PutUint64(b[idAt:], id)
			_, _ = conn.Write(b)
		}
		var code uint64
		for b, n := make([]byte, 1<<17), beats; ; {
			if got, err := conn.Read(b); err != nil || got < headerBytes {
				return // the process has ended
			}
			switch kind, id := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[idAt:]); {
			case beats == 0:
			case kind == kindCode && n > 0:
				code = id
			case kind == kindCode:
				answer(id)
			case kind == kindAlive:
				answer(id)
				if n--; n == 0 {
					answer(code)
				}
			}
		}
	}()
	return path
}

// The library waits for a machine as long as that shows that it is alive, and names one that does not.
func TestSilentMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, emulate(t), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		beats    int
		patience string
		silent   bool
	}{{0, "200", true}, {16, "1000", false}} { // eight beats are the patience
		path := machine(t, c.beats)
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(append(os.Environ(), envRole+"=load", envCode+"="+file, emulated.EnvPatience+"="+c.patience), emulated.MachineEnv(path, "gfx942")...)
		out, err := cmd.CombinedOutput()
		if !c.silent {
			if err != nil {
				t.Errorf("%v: %s: expected that a slow machine is waited for", err, out)
			}
			continue
		}
		if want := fmt.Sprintf("pid %d, %s) has not answered for 200 ms", os.Getpid(), path); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s: expected %q", err, out, want)
		}
	}
}
