package hip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
)

// Kinds of messages, as package internal/gfx/gpus has them, and where a message has its number.
const (
	kindCode, kindAlive, kindResult = 2, 8, 101
	headerBytes, idAt               = 72, 16
)

// machine listens where code objects would be executed. It accepts the first code object when it was asked so many times whether it is alive;
// 0: it answers nothing. After each answer that it is alive, the process gets no processor for so long.
func machine(t *testing.T, beats int, starved time.Duration) (path string) {
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
		pid, err := processAt(conn)
		if err != nil {
			t.Error(err)
			return
		}
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
				if starved > 0 {
					err := syscall.Kill(pid, syscall.SIGSTOP)
					<-time.After(starved)
					if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil {
						t.Error(err)
					}
				}
				if n--; n == 0 {
					answer(code)
				}
			}
		}
	}()
	return path
}

// processAt is the process at the other end of a connection.
func processAt(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *syscall.Ucred
	if e := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); e != nil || err != nil {
		return 0, errors.Join(e, err)
	}
	return int(peer.Pid), nil
}

// The library waits for a machine as long as that shows that it is alive, and names one that does not. Time in which the library itself gets no
// processor is none in which the machine was silent.
func TestSilentMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, emulate(t), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		beats             int
		patience, starved time.Duration
		silent            bool
	}{{0, 200 * time.Millisecond, 0, true}, {9, 2 * time.Second, 0, false}, {2, 2 * time.Second, 2 * time.Second, false}} { // eight beats are the patience
		path := machine(t, c.beats, c.starved)
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(append(os.Environ(), envRole+"=load", envCode+"="+file, fmt.Sprintf("%s=%d", emulated.EnvPatience, c.patience.Milliseconds())), emulated.MachineEnv(path, "gfx942")...)
		out, err := cmd.CombinedOutput()
		if !c.silent {
			if err != nil {
				t.Errorf("%v: %s: expected that a slow machine is waited for, %+v", err, out, c)
			}
			continue
		}
		if want := fmt.Sprintf("pid %d, %s) has not answered for 200 ms", os.Getpid(), path); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s: expected %q", err, out, want)
		}
	}
}
