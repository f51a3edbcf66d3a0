package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// A rank whose network leads nowhere says so at once, and not after the time for all ranks
// to come. In a network namespace of its own even the loopback interface is down.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	watch := promise.Begin()
	p, err := startIn(t, syscall.CLONE_NEWNET, "wait", UniqueID{}, 1, 2, EnvUniqueID+"=", EnvAddr+"=127.0.0.1", EnvPort+"=9")
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs permission to make a network namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
	got := p.expect("failed")
	if got.Peer != 0 || !got.IsPeer || !strings.Contains(got.Error, "no route from this host to rank 0 at 127.0.0.1:9") || !strings.Contains(got.Error, "network is unreachable") {
		t.Errorf("%+v: expected the address and the error of the network", got)
	}
	if err := watch.Kept(DefaultTimeout / 2); err != nil {
		t.Error(err)
	}
}

func TestErrorsWithoutARoute(t *testing.T) {
	for number, want := range map[syscall.Errno]bool{
		syscall.ENETUNREACH: true, syscall.EHOSTUNREACH: true, syscall.ENETDOWN: true, syscall.EHOSTDOWN: true, syscall.EAFNOSUPPORT: true, syscall.EPERM: true,
		syscall.ECONNREFUSED: false, syscall.ETIMEDOUT: false, syscall.ECONNRESET: false, syscall.EADDRNOTAVAIL: false,
	} {
		err := fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", number)})
		if noRoute(err) != want {
			t.Errorf("%v: no route %v, expected %v", number, !want, want)
		}
	}
}

// An address of IPv6 may come in brackets.
func TestBracketsAroundTheAddress(t *testing.T) {
	for host, want := range map[string]string{"[::1]": "[::1]:29500", "::1": "[::1]:29500", "node1": "node1:29500"} {
		env := map[string]string{EnvRank: "1", EnvSize: "2", EnvAddr: host, EnvPort: "29500"}
		c, err := FromEnv(func(name string) string { return env[name] })
		if err != nil || c.Addr != want {
			t.Errorf("%s: %q, %v: expected %q", host, c.Addr, err, want)
		}
	}
}

func TestLongDurations(t *testing.T) {
	for name, c := range map[string]Config{
		"timeout":   {Size: 2, Addr: "127.0.0.1:1", Timeout: 1<<63 - 1},
		"heartbeat": {Size: 2, Addr: "127.0.0.1:1", Heartbeat: 1<<63 - 1},
	} {
		if _, err := c.complete(); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// locked is a log that several goroutines write.
type locked struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

// Strangers cannot fill the log: they are counted.
func TestStrangersDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log locked
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Config{Size: 2, ID: id, Listener: l, Log: slog.New(slog.NewTextHandler(&log, nil))})
		failed <- err
	}()
	begun := time.Now()
	const strangers = 200
	for range strangers {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(bytes.Repeat([]byte("x"), handshake.HelloSize))
		_, _ = conn.Read(make([]byte, 1)) // until it is turned down
		_ = conn.Close()
	}
	cancel()
	<-failed // behind it nothing is logged
	most := 2 + int(time.Since(begun)/time.Second)
	log.mu.Lock()
	defer log.mu.Unlock()
	if n := strings.Count(log.String(), "turned down"); n < 1 || n > most {
		t.Errorf("%d lines about %d strangers: expected one at least and %d at most", n, strangers, most)
	}
}
