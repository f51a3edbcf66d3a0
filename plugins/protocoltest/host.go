package protocoltest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins/internal/environ"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

const (
	cookie     = "MSCCLPP_TRANSPORT_PLUGIN=2f0e9c55-1f6b-4f0c-9b51-6d1b4a2f7c3e"
	maxMessage = 64 << 20
)

// host is the suite in the place of a rank process, with one plugin.
type host struct {
	t       transporttest.TB
	cmd     *exec.Cmd
	dir     string   // PLUGIN_UNIX_SOCKET_DIR
	control *os.File // our end of the control socket
	conn    *os.File // our end of the inherited connection; nil where the plugin got none
	stdout  *os.File
	log     *lines // the output of the plugin after its handshake
	line    string // its handshake
	exited  chan struct{}
	limit   time.Duration // of a call
	client  pb.TransportServiceClient

	mu   sync.Mutex
	call uint64 // the last number of a call
	fd   uint64 // the last number of a descriptor
}

// startMode is how the program is started.
type startMode struct {
	connected bool // it inherits a connection for gRPC
	copied    bool // a copy is executed, as of a program whose checksum is pinned

	// child gets the number of the process where a shell is its parent; nil: the suite is.
	child *os.File
}

// behind starts a program in the background and prints its number.
const behind = `"$0" 6>&- & echo $! >&6; wait`

// Descriptors of the plugin.
const (
	controlFD    = 3
	connectionFD = 4
	folderFD     = 5
	copyFD       = 6
)

// launched starts the program with an environment of the caller's, and reads nothing.
func (s *launcher) launched(t transporttest.TB, m startMode, env ...string) *host {
	dir, err := os.MkdirTemp("", "mscclpp-conform-")
	if err != nil {
		t.Fatalf("make a folder for the plugin's socket: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("make a control socket: %v", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	defer in.Close()
	h := &host{t: t, dir: dir, control: os.NewFile(uintptr(pair[0]), "control"), stdout: out, log: &lines{}, exited: make(chan struct{}), limit: s.program.CallLimit}
	h.cmd = exec.Command(s.program.Path)
	if m.child != nil {
		h.cmd = exec.Command("/bin/sh", "-c", behind, s.program.Path)
	}
	h.cmd.Env = append(environ.Filter(os.Environ()),
		"PLUGIN_UNIX_SOCKET_DIR="+dir,
		fmt.Sprint(environ.ControlKey, "=", controlFD), fmt.Sprintf("%s=/proc/self/fd/%d", environ.FolderKey, folderFD), environ.LogLevelKey+"=INFO")
	h.cmd.Env = append(append(h.cmd.Env, s.program.Env...), env...)
	h.cmd.Stdout, h.cmd.Stderr, h.cmd.ExtraFiles = in, h.log, []*os.File{theirs}
	for _, file := range s.inherited(t, h, m) {
		h.cmd.ExtraFiles = append(h.cmd.ExtraFiles, file)
		defer file.Close()
	}
	if m.child != nil {
		h.cmd.ExtraFiles = append(h.cmd.ExtraFiles, m.child)
	}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.cmd.WaitDelay = killBound
	if err := h.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", s.program.Path, err)
	}
	go func() {
		defer close(h.exited)
		_ = h.cmd.Wait() // its state says how
	}()
	t.Cleanup(func() {
		h.control.Close()
		select {
		case <-h.exited:
		default:
			_ = unix.Kill(-h.cmd.Process.Pid, unix.SIGKILL)
			<-h.exited
		}
		h.stdout.Close()
	})
	return h
}

// started starts the program up to its handshake.
func (s *launcher) started(t transporttest.TB, env ...string) *host {
	return s.startedBy(t, startMode{}, env...)
}

func (s *launcher) startedBy(t transporttest.TB, m startMode, env ...string) *host {
	if len(env) == 0 {
		env = []string{"PLUGIN_PROTOCOL_VERSIONS=1"}
	}
	h := s.launched(t, m, append(env, cookie)...)
	_ = h.stdout.SetReadDeadline(time.Now().Add(startBound))
	in := bufio.NewReader(h.stdout)
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatalf("the plugin printed %.120q and no handshake within %v: %v%s", line, startBound, err, h.said())
	}
	_ = h.stdout.SetReadDeadline(time.Time{})
	go func() { _, _ = in.WriteTo(h.log) }()
	h.line = strings.TrimSuffix(line, "\n")
	return h
}

// connected starts the program and connects to its service, which is not configured.
func (s *launcher) connected(t transporttest.TB) *host {
	h := s.started(t)
	h.dial()
	return h
}

// dial connects to the service that the handshake names.
func (h *host) dial() {
	t := h.t
	address, err := addressIn(h.line)
	if err != nil {
		t.Fatalf("handshake %q: %v", h.line, err)
	}
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if address == "inherited" && h.conn != nil {
				return net.FileConn(h.conn)
			}
			var d net.Dialer
			return d.DialContext(ctx, "unix", address)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage), grpc.WaitForReady(true)),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry())
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	t.Cleanup(func() { conn.Close() })
	h.client = pb.NewTransportServiceClient(conn)
}

// configured starts the program and makes its transport.
func (s *launcher) configured(t transporttest.TB) (*host, *pb.Description) {
	h := s.connected(t)
	ctx, cancel := h.within(startBound)
	defer cancel()
	answer, err := h.client.Configure(ctx, &pb.ConfigureRequest{Options: s.options()})
	if err != nil {
		t.Fatalf("configure: %v%s", err, h.said())
	}
	return h, answer.GetDescription()
}

func (s *launcher) options() []byte {
	if s.program.Options == nil {
		return []byte("{}")
	}
	return s.program.Options
}

// addressIn takes the address of the socket from a handshake.
func addressIn(line string) (string, error) {
	parts := strings.Split(line, "|")
	if len(parts) < 5 || parts[0] != "1" || parts[2] != "unix" || parts[4] != "grpc" {
		return "", fmt.Errorf("want 1|version|unix|address|grpc")
	}
	return parts[3], nil
}

// ends waits until the process has ended, and says within what time it did.
func (h *host) ends(bound time.Duration) (took time.Duration, ended bool) {
	start := time.Now()
	select {
	case <-h.exited:
		return time.Since(start), true
	case <-time.After(bound):
		return bound, false
	}
}

// alive reports whether the process goes on for as long as the suite looks.
func (h *host) alive() bool {
	_, ended := h.ends(settle)
	return !ended
}

// status says how the process ended.
func (h *host) status() string {
	select {
	case <-h.exited:
		return h.cmd.ProcessState.String() + h.said()
	default:
		return "alive"
	}
}

// said is the end of the log, for messages.
func (h *host) said() string {
	if text := h.log.last(4); text != "" {
		return "; it printed:\n" + text
	}
	return ""
}

func (h *host) proc(name string) string {
	return filepath.Join("/proc", fmt.Sprint(h.cmd.Process.Pid), name)
}

// descriptors counts those that the plugin has open.
func (h *host) descriptors() int {
	list, err := os.ReadDir(h.proc("fd"))
	if err != nil {
		h.t.Fatalf("look at the descriptors of the plugin: %v", err)
	}
	return len(list)
}

// back waits until the plugin has no more descriptors than before.
func (h *host) back(what string, before int) {
	deadline := time.Now().Add(h.limit)
	for {
		now := h.descriptors()
		if now <= before {
			return
		}
		if time.Now().After(deadline) {
			h.t.Errorf("%s: the plugin has %d more descriptors open than before", what, now-before)
			return
		}
		select {
		case <-h.t.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// lines keeps what a plugin prints.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(strings.TrimSpace(l.text.String()), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

// bounded is a context for one call, which ends with the plugin.
func (h *host) bounded() (context.Context, context.CancelFunc) { return h.within(h.limit) }

func (h *host) within(bound time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(h.t.Context(), bound)
	go func() {
		select {
		case <-h.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
