// Package apart looks for the devices of a back end in a process of its own: a process that has loaded a back end must not start ranks,
// and a driver may crash or hang.
package apart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/internal/setup"
)

// Flag makes mscclpp-run that process. Its argument is the question, as JSON.
const Flag = "--count-devices"

// limit is the time that a back end has. A driver without users starts its devices first.
const limit = time.Minute

type question struct {
	Type      string
	Backend   config.DeviceBackend
	GPUMemory string        `json:",omitempty"`
	Open      bool          `json:",omitempty"` // and describe them: counting starts no device
	Limit     time.Duration // the process ends by then, whatever the driver does, and whether its parent lives
}

type answer struct {
	Devices int
	List    []topo.GPU
	Error   string
	Class   int // of Error: 1 is the first of framework.Classes, 0 none
}

// failure is the error of that process.
type failure struct {
	text  string
	class error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.class }

// Count counts the devices of a type, which has that back end. ErrUnavailable: there is none.
func Count(ctx context.Context, typ string, b config.DeviceBackend) (int, error) {
	a, err := ask(ctx, question{Type: typ, Backend: b})
	return a.Devices, err
}

// Find lists the devices of a type, as setup.FindDevices does.
func Find(ctx context.Context, name string, cfg *config.Config) ([]topo.GPU, error) {
	a, err := ask(ctx, question{Type: name, Backend: cfg.Devices[name], GPUMemory: cfg.GPUMemory, Open: true})
	return a.List, err
}

func ask(ctx context.Context, q question) (a answer, err error) {
	self, err := os.Executable()
	if err != nil {
		return a, fmt.Errorf("own program: %w", err)
	}
	q.Limit = limit
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, self, Flag, "--", string(text))
	c.WaitDelay = time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the signal is sent when the thread ends that has started the process
	defer runtime.UnlockOSThread()
	out, err := c.Output()
	what := fmt.Sprintf("devices.%s: the process that looks for the devices of %s", q.Type, q.Backend.Path)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return a, fmt.Errorf("%s has found none within %v: %w", what, limit, ctx.Err())
	case ctx.Err() != nil:
		return a, fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case err != nil:
		return a, fmt.Errorf("%s: %w%s", what, err, said(err))
	case json.Unmarshal(out, &a) != nil:
		return a, fmt.Errorf("%w: devices.%s: %s has printed %.100q: a back end prints nothing", framework.ErrInvalid, q.Type, q.Backend.Path, out)
	case a.Error != "":
		f := &failure{text: a.Error}
		if a.Class > 0 && a.Class <= len(framework.Classes) {
			f.class = framework.Classes[a.Class-1]
		}
		return a, f
	}
	return a, nil
}

// said is the beginning of what a process that failed has printed: the end of a crash is registers.
func said(err error) string {
	var x *exec.ExitError
	if !errors.As(err, &x) {
		return ""
	}
	const lines, most = 3, 300
	var text []string
	for line := range strings.Lines(string(x.Stderr)) {
		if line = strings.TrimSpace(line); line != "" && len(text) < lines {
			text = append(text, line)
		}
	}
	if len(text) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.*s", most, strings.Join(text, "; "))
}

// Serve is that process.
func Serve(args []string, stdout, stderr io.Writer) error {
	var q question
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &q) != nil {
		return fmt.Errorf("%w: %s: expected a question of mscclpp-run", framework.ErrInvalid, Flag)
	}
	time.AfterFunc(q.Limit, func() {
		fmt.Fprintf(stderr, "the back end has not answered within %v\n", q.Limit)
		os.Exit(1)
	})
	var a answer
	var err error
	log := slog.New(slog.DiscardHandler)
	if q.Open {
		cfg := &config.Config{GPUMemory: q.GPUMemory, Devices: map[string]config.DeviceBackend{q.Type: q.Backend}}
		a.List, err = setup.FindDevices(q.Type, cfg, log)
	} else {
		a.Devices, err = setup.CountDevices(q.Type, q.Backend, log)
	}
	if err != nil {
		a.Error, a.Class = err.Error(), 1+slices.Index(framework.Classes, framework.Class(err))
	}
	return json.NewEncoder(stdout).Encode(a)
}
