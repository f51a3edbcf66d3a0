package plugins

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// drainBound is how long the output of a dead plugin is still read: a process that
// it left behind may keep the pipe open.
const drainBound = 50 * time.Millisecond

// maxHandshake is the longest first line that is looked at.
const maxHandshake = 4096

// A process is a running plugin. It implements go-plugin's runner.AttachedRunner: start,
// output and death are handled here, where they can be distinguished.
type process struct {
	path  string
	cmd   *exec.Cmd
	child *supervise.Child
	log   *output

	stdout, stderr *os.File // our ends
	draining       sync.WaitGroup

	mu     sync.Mutex
	exited chan struct{} // closed when it is dead
	status string        // how it died
}

// A command says what spawn starts.
type command struct {
	name   string // that the process sees as its own
	path   string // that is executed
	env    []string
	files  []*os.File // its descriptors 3, 4, …
	serves bool       // it calls Serve
	// prepare makes what only a process cleans up, right before there is one, and returns
	// further variables.
	prepare func() ([]string, error)
}

// spawn starts the process.
func spawn(c command, log *output) (*process, error) {
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		outR.Close()
		return nil, err
	}
	defer errW.Close()
	p := &process{path: c.name, log: log, stdout: outR, stderr: errR, exited: make(chan struct{})}
	pidfd := -1
	p.cmd = &exec.Cmd{
		Path: c.path, Args: []string{c.name}, Env: c.env, Stdout: outW, Stderr: errW, ExtraFiles: c.files,
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid: true, // Ctrl-C is for the rank; and the group can be killed
			// Beside the end of the control socket, for plugins that do not watch
			// it. SIGTERM lets them clean up.
			Pdeathsig: syscall.SIGTERM,
			PidFD:     &pidfd,
		},
	}
	if c.serves {
		// Serve asks for SIGTERM once it is there to clean up. Before, there is nothing
		// to clean up.
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started := make(chan error, 1)
	go p.run(c, started, &pidfd)
	if err := <-started; err != nil {
		outR.Close()
		errR.Close()
		return nil, err
	}
	p.draining.Add(1)
	go func() {
		defer p.draining.Done()
		p.log.copy(p.stderr)
	}()
	return p, nil
}

// run starts the process and waits for its end, on one thread: the kernel sends the
// signal of a parent's death when the thread that forked ends.
func (p *process) run(c command, started chan<- error, pidfd *int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.start(c)
	if err == nil {
		p.child = supervise.NewChild(p.cmd.Process.Pid, *pidfd)
	}
	started <- err
	if err != nil {
		return
	}
	p.awaitEnd()
	p.kill() // processes that it may have left behind
	_ = p.cmd.Wait()
	status := "it " + supervise.TakenText
	if p.cmd.ProcessState != nil {
		status = p.cmd.ProcessState.String()
	}
	p.child.Close()
	p.mu.Lock()
	p.status = status
	p.mu.Unlock()
	deadline := time.Now().Add(drainBound)
	_ = p.stderr.SetReadDeadline(deadline)
	_ = p.stdout.SetReadDeadline(deadline)
	close(p.exited)
}

func (p *process) start(c command) error {
	if c.prepare != nil {
		more, err := c.prepare()
		if err != nil {
			return err
		}
		p.cmd.Env = append(p.cmd.Env, more...)
	}
	return p.cmd.Start()
}

// awaitEnd returns when the process is dead. It is not reaped then, unless other code of the host
// waits for all children. It tells when a signal stops the process, since calls then wait for it in
// silence.
func (p *process) awaitEnd() {
	for p.child.Wait(unix.WEXITED|unix.WSTOPPED).Code == supervise.Stopped {
		// In the background: the death of the plugin is seen even if nobody reads the log.
		go p.log.log.Warn("plugin is stopped: what is asked of it waits until it gets SIGCONT", "path", p.path, "pid", p.child.PID)
		p.child.Noted()
	}
}

// dies reports whether the process ends within the bound. One that is dying by then has the time that it needs.
func (p *process) dies(bound time.Duration) bool {
	look := time.NewTimer(bound)
	defer look.Stop()
	for limit := time.Now().Add(bound + dyingBound); ; look.Reset(time.Millisecond) {
		select {
		case <-p.exited:
			return true
		case <-look.C:
			if s, found := supervise.Of(p.child.PID); found && !s.Exiting || time.Now().After(limit) {
				return false
			}
		}
	}
}

// kill ends the process and its group.
func (p *process) kill() { _ = p.child.Signal(unix.SIGKILL) }

// ended reports whether a signal to all processes of a job may have ended the process.
func (p *process) ended() bool {
	select {
	case <-p.exited:
	default:
		return false
	}
	if p.cmd.ProcessState == nil { // the host's other code took it
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == unix.SIGTERM || status.Signal() == unix.SIGINT)
}

// exitStatus says how the process died: "exit status 2", "signal: killed".
func (p *process) exitStatus() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// readHandshake reads the first line of standard output; the rest goes to the log.
func (p *process) readHandshake(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.stdout.SetReadDeadline(time.Now()) })
	defer stop()
	in := bufio.NewReaderSize(p.stdout, maxHandshake)
	line, err := in.ReadSlice('\n')
	first := strings.TrimRight(string(line), "\r\n")
	if err != nil && (ctx.Err() != nil || !errors.Is(err, bufio.ErrBufferFull)) {
		return first, err
	}
	p.draining.Add(1)
	go func() {
		defer p.draining.Done()
		p.log.copy(in)
	}()
	return first, nil
}

// release closes our ends, after the death of the process.
func (p *process) release() {
	p.draining.Wait()
	p.stdout.Close()
	p.stderr.Close()
}

// The methods of runner.AttachedRunner.

// ID returns the process id.
func (p *process) ID() string { return fmt.Sprint(p.cmd.Process.Pid) }

// Wait waits for the death of the process.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return nil
}

// Kill ends the process.
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

// PluginToHost and HostToPlugin: both live in one file system.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin is the inverse.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// parseHandshake checks the first line: core|version|network|address|protocol[|…].
// On success it returns the version and the address.
func parseHandshake(line string) (version int, address string, reason Reason, err error) {
	parts := strings.Split(line, "|")
	if len(parts) < 4 {
		return 0, "", Junk, fmt.Errorf("printed %.120q on standard output, expected the handshake line", line)
	}
	if _, err := fmt.Sscanf(parts[0]+" "+parts[1], "%d", new(int)); err != nil || strings.Trim(parts[1], "0123456789") != "" {
		return 0, "", Junk, fmt.Errorf("printed %.120q on standard output, expected the handshake line", line)
	}
	if parts[0] != "1" {
		return 0, "", Protocol, fmt.Errorf("speaks handshake version %s, expected 1", parts[0])
	}
	if _, err := fmt.Sscan(parts[1], &version); err != nil || version < 1 || version > ProtocolVersion {
		return 0, "", Protocol, fmt.Errorf("speaks protocol version %s, expected 1 to %d", parts[1], ProtocolVersion)
	}
	if len(parts) < 5 || parts[4] != "grpc" {
		return 0, "", Protocol, fmt.Errorf("serves net/rpc, expected grpc: %.120q", line)
	}
	if parts[2] != "unix" || parts[3] == "" {
		return 0, "", Protocol, fmt.Errorf("listens on %s %s, expected a Unix socket", parts[2], parts[3])
	}
	return version, parts[3], "", nil
}

var errClosed = fmt.Errorf("%w: the plugin was shut down", framework.ErrClosed)
