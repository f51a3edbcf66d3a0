package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// maxBanner is how much a login shell may print before the agent's greeting.
const maxBanner = 64 << 10

// maxHeard is how much of such a line is repeated.
const maxHeard = 200

// event is news of one host.
type event struct {
	host  int
	frame frame
	err   error // the conversation is over
}

// link is the launcher's end of the conversation with one host.
type link struct {
	host   Host
	cmd    *exec.Cmd
	child  *supervise.Child // nil: it could not be started
	mu     sync.Mutex
	hungUp bool
	queue  chan frame // to the agent; closed by hangUp
	stderr tail
	exited chan struct{}

	heard   string // the last line before the greeting, for a message
	hello   Hello
	counted counted
	tallied bool // counted has come
	greeted bool
	ended   bool // the agent has sent its end, or never will

	ranks string // of the host, for a message
	left  bool   // they ended with code 0, and nobody had asked them to
}

// dial starts ssh. Everything that comes of it, its failure included, comes as events.
func dial(host Host, at int, command []string, stderr io.Writer, events chan<- event, done <-chan struct{}) *link {
	l := &link{host: host, queue: make(chan frame, 64), exited: make(chan struct{})}
	l.stderr.to = stderr
	l.cmd = exec.Command(command[0], command[1:]...)
	pidfd := -1
	// A terminal's signals to the launcher must not end ssh before the ranks.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd}
	l.cmd.Stderr = &l.stderr
	l.cmd.WaitDelay = time.Second
	in, err1 := l.cmd.StdinPipe()
	out, err2 := l.cmd.StdoutPipe()
	err := errors.Join(err1, err2)
	if err == nil {
		err = l.cmd.Start()
	}
	if err == nil {
		l.child = supervise.NewChild(l.cmd.Process.Pid, pidfd)
	}
	report := func(e event) {
		e.host = at
		select {
		case events <- e:
		case <-done:
		}
	}
	if err != nil {
		close(l.exited)
		go report(event{err: fmt.Errorf("%w: ssh: %w: expected a command that runs another one on the host, see --ssh", framework.ErrUnavailable, err)})
		return l
	}
	go func() {
		w := frames{w: in}
		for f := range l.queue {
			if w.write(f.kind, f.body) != nil {
				break // the reader hears of it
			}
		}
		_ = in.Close()
		for range l.queue {
		}
	}()
	go func() {
		err := l.read(out, report)
		cut := err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if !cut { // it says what nobody understands, perhaps without an end
			report(event{err: err})
			l.hangUp()
		}
		_, _ = io.Copy(io.Discard, out)
		wait := l.cmd.Wait()
		l.child.Close()
		close(l.exited)
		if cut {
			report(event{err: l.explain(err, wait)})
		}
	}()
	return l
}

// read passes on what the agent says, to the end.
func (l *link) read(out io.Reader, report func(event)) error {
	r := bufio.NewReaderSize(out, 64<<10)
	for read := 0; ; {
		line, err := r.ReadSlice('\n')
		read += len(line)
		if string(bytes.TrimRight(line, "\r\n")) == greeting {
			break
		}
		if old, ok := bytes.CutPrefix(line, []byte("mscclpp-run agent ")); ok && err == nil {
			return fmt.Errorf("%w: mscclpp-run there speaks version %q of the agents' protocol, this one %q: use one release on all hosts", framework.ErrPeer, bytes.TrimSpace(old), greeting[len("mscclpp-run agent "):])
		}
		if text := strings.TrimSpace(string(line)); text != "" {
			l.heard = text[:min(len(text), maxHeard)]
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if read > maxBanner {
			return fmt.Errorf("%w: %d bytes and no greeting of mscclpp-run: expected a quiet login shell", framework.ErrPeer, read)
		}
	}
	for {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		report(event{frame: f})
		if f.kind == kindEnd {
			return nil
		}
	}
}

// explain says why a conversation is over that was cut off.
func (l *link) explain(err, wait error) error {
	if err == nil {
		return nil
	}
	code := -1
	if l.cmd.ProcessState != nil {
		code = l.cmd.ProcessState.ExitCode()
	}
	said, ending := l.stderr.last(), "ended in order"
	if said == "" && l.heard != "" {
		said = ": " + l.heard
	}
	if wait != nil {
		ending = wait.Error()
	}
	switch {
	case l.stderr.isLive():
		return fmt.Errorf("%w: the connection to mscclpp-run there ended (%s: %s%s)", framework.ErrPeer, l.cmd.Args[0], ending, said)
	case code == 127 || code == 126:
		return fmt.Errorf("%w: mscclpp-run could not be started there%s: install it at the same path as here, or name its path with --agent", framework.ErrUnavailable, said)
	case wait == nil:
		return fmt.Errorf("%w: %s ended in order, and no mscclpp-run has answered%s: expected that it runs the command it is given, on the host, and passes on what is said: see --ssh and --agent", framework.ErrUnavailable, l.cmd.Args[0], said)
	}
	return fmt.Errorf("%w: cannot be reached (%s: %s%s): expected that `%s %s true` works without a question", framework.ErrUnavailable, l.cmd.Args[0], ending, said, l.cmd.Args[0], l.host.Name)
}

// send queues a message; an agent that takes none for long is not worth more.
func (l *link) send(kind byte, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hungUp {
		return
	}
	select {
	case l.queue <- frame{kind, body}:
	default:
	}
}

// hangUp ends the agent's input, which ends its ranks.
func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hungUp {
		l.hungUp = true
		close(l.queue)
	}
}

// kill ends ssh. The agent notices by the end of its input.
func (l *link) kill() {
	if l.child != nil {
		_ = l.child.Signal(syscall.SIGKILL)
	}
}

// tail keeps the last of what ssh prints for a message, and passes it on once the
// agent has answered.
type tail struct {
	mu   sync.Mutex
	to   io.Writer
	live bool
	text []byte
}

func (w *tail) Write(p []byte) (int, error) {
	if w.isLive() {
		return w.to.Write(p) // without the lock: a request for the last line does not wait for a reader
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-4096):]
	return len(p), nil
}

// answered passes on what comes from now on.
func (w *tail) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = true
}

func (w *tail) isLive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live
}

// last is the last line, for a message, or nothing.
func (w *tail) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(w.text)), "\n")
	if text := strings.TrimSpace(lines[len(lines)-1]); text != "" {
		return ": " + text
	}
	return ""
}
