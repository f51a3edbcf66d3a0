package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/socketdir"
	"github.com/mscclpp-go/mscclpp/plugins/internal/environ"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

var sweepOnce sync.Once

// Open starts a plugin and makes its transport. A failure of the process is a
// *StartError. An objection of the transport, to an unknown option for example, is the
// transport's own error.
func Open(ctx context.Context, spec Spec) (*Client, error) {
	c, err := launch(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer c.cancelStart()
	options, err := encode(spec.Options)
	if err == nil {
		err = c.wire.Configure(c.startCtx, options, spec.Layouts)
	}
	if err == nil && spec.Name != "" && c.wire.Description().Name != spec.Name {
		err = &framework.Error{Op: "open", Transport: spec.Name, Peer: framework.NoPeer, Err: fmt.Errorf(
			"%w: %s contains transport %q", framework.ErrInvalid, spec.Path, c.wire.Description().Name)}
	}
	if err != nil {
		return nil, c.startFailed(ctx, err)
	}
	return c, nil
}

// Info is what Inspect learns of a plugin.
type Info struct {
	Description     framework.Description // zero if Err
	Schema          []Option
	ProtocolVersion int
	Err             error // why the transport does not start without options
}

// Inspect starts a plugin, asks it to describe itself, and stops it.
func Inspect(ctx context.Context, spec Spec) (Info, error) {
	c, err := launch(ctx, spec)
	if err != nil {
		return Info{}, err
	}
	defer c.cancelStart()
	schema, err := c.wire.Schema(c.startCtx)
	if err != nil {
		return Info{}, c.startFailed(ctx, err)
	}
	info := Info{Schema: schemaIn(schema), ProtocolVersion: c.version}
	options, err := encode(spec.Options)
	if err == nil {
		err = c.wire.Configure(c.startCtx, options, spec.Layouts)
	}
	if err != nil && errors.Is(err, framework.ErrPlugin) {
		return Info{}, c.startFailed(ctx, err)
	}
	info.Err = err
	if err == nil {
		info.Description = c.wire.Description()
	}
	return info, c.Shutdown()
}

// launch starts the process and connects. On success the caller ends the start
// with c.cancelStart.
func launch(ctx context.Context, spec Spec) (*Client, error) {
	if spec.Path == "" {
		return nil, fmt.Errorf("%w: plugin %s: no path", framework.ErrInvalid, spec.Name)
	}
	if spec.Log == nil {
		spec.Log = slog.Default()
	}
	if spec.StartTimeout <= 0 {
		spec.StartTimeout = DefaultStartTimeout
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", spec.Name, err)
	}
	file, err := openProgram(spec)
	if err != nil {
		return nil, err
	}
	defer file.close()
	c := &Client{spec: spec, gone: make(chan struct{})}
	c.startCtx, c.cancelStart = context.WithTimeout(ctx, spec.StartTimeout)
	if err := c.start(file); err != nil {
		err = c.startFailed(ctx, err)
		c.cancelStart()
		return nil, err
	}
	return c, nil
}

// start runs the process up to a working connection. The caller cleans up by
// startFailed.
func (c *Client) start(file *program) error {
	sweepOnce.Do(socketdir.Sweep)
	c.out = newOutput(c.spec.Log.With("plugin", c.spec.Name))
	// go-plugin's own waits end when the process does.
	stop := context.AfterFunc(c.startCtx, c.killStarted)
	defer stop()
	version, address, err := c.run(file)
	if err != nil {
		return err
	}
	conn, err := c.connect(version, address)
	if err != nil {
		return err
	}
	c.version = version
	c.wire = wire.NewClient(c.name(), conn, c.fds, c)
	c.Transport, c.Prober, c.Proxier, c.Imager = c.wire, c.wire, c.wire, c.wire
	c.watching.Add(1)
	go c.watch()
	return nil
}

// starts is how often a plugin is started that a signal ends before its handshake.
const starts = 4

// run starts the process and reads its handshake: the version of the protocol, and where
// it serves. A signal for all processes of a job is not for the plugin, but for some
// milliseconds nothing in its process can prevent that it ends the plugin. Nothing is lost
// then but these, so the host starts it again.
func (c *Client) run(file *program) (version int, address string, err error) {
	for try := 1; ; try++ {
		version, address, err = c.runOnce(file)
		if err == nil || try == starts || c.startCtx.Err() != nil || c.proc == nil || !c.proc.ended() {
			return version, address, err
		}
		c.spec.Log.Warn("a signal ended the plugin in its start: starting it again", "plugin", c.name(), "status", c.proc.exitStatus())
		c.abandon()
	}
}

// abandon forgets a process that is dead.
func (c *Client) abandon() {
	c.fds.Close()
	c.conn.Close()
	if c.dir != nil {
		c.dir.Remove()
	}
	<-c.proc.exited
	c.proc.release()
	c.setProcess(nil)
}

func (c *Client) runOnce(file *program) (version int, address string, err error) {
	control, connection, err := c.sockets()
	if err != nil {
		return 0, "", err
	}
	defer control.Close()
	defer connection.Close()
	cmd := command{name: c.spec.Path, path: c.spec.Path, serves: file.serves, files: []*os.File{control, connection, file.folder}}
	if file.sealed != nil {
		cmd.files = append(cmd.files, file.sealed)
		cmd.path = inheritedPath(firstFile + 3)
	}
	if !file.serves {
		cmd.prepare = c.makeSocketDir
	}
	cmd.env = append(handshakeEnvironment(), environ.Filter(os.Environ())...)
	cmd.env = append(cmd.env, fmt.Sprint(controlKey, "=", firstFile), fmt.Sprint(connectionKey, "=", firstFile+1),
		folderKey+"="+inheritedPath(firstFile+2), logLevelKey+"="+c.out.level().String())
	cmd.env = append(cmd.env, c.spec.Env...)
	proc, err := spawn(cmd, c.out)
	if err != nil && framework.Class(err) != nil {
		return 0, "", err
	} else if err != nil {
		return 0, "", c.failure(NotExecutable, fmt.Errorf("cannot be executed: %w", err))
	}
	c.setProcess(proc)
	line, err := proc.readHandshake(c.startCtx)
	if err != nil {
		return 0, "", c.noAnswer("before the handshake")
	}
	version, address, reason, err := parseHandshake(line)
	if err != nil {
		return 0, "", c.failure(reason, err)
	}
	return version, address, nil
}

// firstFile is the first descriptor that a process gets beside its standard ones.
const firstFile = 3

// sockets makes what the plugin inherits: its ends of the control socket and of the
// connection for gRPC.
func (c *Client) sockets() (control, connection *os.File, err error) {
	ours, control, err := fdsock.Pair()
	if err != nil {
		return nil, nil, err
	}
	if c.fds, err = fdsock.New(ours, fdsock.Host); err == nil {
		c.conn, connection, err = connectionPair()
	}
	if err != nil {
		control.Close()
		return nil, nil, err
	}
	return control, connection, nil
}

// makeSocketDir makes the folder for a plugin that needs one, and returns the variable
// that names it.
func (c *Client) makeSocketDir() ([]string, error) {
	dir, err := socketdir.Make()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	c.dir = dir
	return []string{goplugin.EnvUnixSocketDir + "=" + dir.Path}, nil
}

// setProcess publishes the process to the watchdog of the start, which may have
// given up already.
func (c *Client) setProcess(p *process) {
	c.mu.Lock()
	c.proc = p
	c.mu.Unlock()
	if p != nil && c.startCtx.Err() != nil {
		p.kill()
	}
}

func (c *Client) killStarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		c.proc.kill()
	}
}

// connect makes the client of a process that has shaken hands.
func (c *Client) connect(version int, address string) (*grpc.ClientConn, error) {
	c.goclient = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: handshake,
		Plugins:         versions()[version],
		Reattach: &goplugin.ReattachConfig{
			Protocol: goplugin.ProtocolGRPC, ProtocolVersion: version,
			Addr:         &net.UnixAddr{Name: address, Net: "unix"},
			ReattachFunc: func() (runner.AttachedRunner, error) { return c.proc, nil },
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		SyncStdout:       &writer{o: c.out},
		SyncStderr:       &writer{o: c.out},
		GRPCDialOptions:  c.dialOptions(address),
	})
	protocol, err := c.goclient.Client()
	if err != nil {
		return nil, c.noAnswer("after the handshake: " + err.Error())
	}
	raw, err := protocol.Dispense(dispensed)
	if err != nil {
		return nil, c.noAnswer("after the handshake: " + err.Error())
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("%w: go-plugin dispensed %T", framework.ErrPlugin, raw)
	}
	return conn, nil
}

func (c *Client) failure(reason Reason, err error) *StartError {
	return &StartError{Name: c.name(), Path: c.spec.Path, Reason: reason, Err: err}
}

// noAnswer tells why a start got no further: the plugin died, or hangs, or hung up.
func (c *Client) noAnswer(when string) error {
	died := c.proc.dies(statusBound)
	switch {
	case c.startCtx.Err() != nil:
		return c.failure(Hung, fmt.Errorf("did not answer within %v, %s", c.spec.StartTimeout, when))
	case died:
		return c.failure(Died, fmt.Errorf("ended %s with %s", when, c.proc.exitStatus()))
	}
	return c.failure(Junk, fmt.Errorf("closed its output or its socket %s", when))
}

// gaveUp reports whether a call ended because its time was up.
func gaveUp(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// startFailed ends what a failed start has begun and completes its error.
func (c *Client) startFailed(ctx context.Context, err error) error {
	timeout := c.startCtx.Err()
	if timeout == nil && ctx.Err() == nil && gaveUp(err) {
		// The plugin's side of a call can notice the deadline before this side does.
		timeout = context.DeadlineExceeded
	}
	var start *StartError
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("plugin %s: start: %w", c.name(), ctx.Err())
	case errors.As(err, &start):
	case timeout != nil:
		start = c.failure(Hung, fmt.Errorf("did not answer within %v, after the handshake", c.spec.StartTimeout))
	case errors.Is(err, framework.ErrPlugin) && c.proc != nil:
		start = c.failure(Protocol, fmt.Errorf("shook hands and cannot be talked to: %w", err))
		if c.proc.dies(statusBound) {
			start = c.failure(Died, fmt.Errorf("ended after the handshake with %s", c.proc.exitStatus()))
		}
	}
	// Only a plugin that works is asked to end, rather than killed.
	c.destroy(timeout == nil && start == nil)
	if start == nil {
		return err
	}
	if c.out != nil && start.Reason != Checksum {
		start.Output = c.out.last()
	}
	return start
}
