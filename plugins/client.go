package plugins

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	goplugin "github.com/hashicorp/go-plugin"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/socketdir"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

// Bounds of an orderly end, of the wait for a process to die whose socket has ended, and of that for one which is
// dying: on a busy machine the system closes its files long before there is a status.
const (
	exitBound   = 500 * time.Millisecond
	statusBound = 50 * time.Millisecond
	dyingBound  = 5 * time.Second
)

// Client is a running plugin as a transport. It has every optional method; those that
// the plugin does not claim fail with ErrUnsupported. Once the process is gone, every
// call fails with ErrPlugin and says why.
//
// Close(ctx, id) is the transport's method; Shutdown ends the process.
type Client struct {
	framework.Transport
	framework.Prober
	framework.Proxier
	framework.Imager

	spec     Spec
	wire     *wire.Client
	fds      *fdsock.Conn
	out      *output
	conn     net.Conn       // for gRPC, which the plugin inherits; it need not take it
	dir      *socketdir.Dir // nil for a plugin that needs none
	goclient *goplugin.Client
	version  int

	startCtx    context.Context
	cancelStart context.CancelFunc

	proc     *process
	watching sync.WaitGroup
	gone     chan struct{}

	mu     sync.Mutex
	closed bool
	err    error

	destroying sync.Once
}

// Description returns what the plugin said about itself when it was started.
func (c *Client) Description() framework.Description { return c.wire.Description() }

// Schema lists the options that the transport accepts.
func (c *Client) Schema() []Option { return schemaIn(c.wire.Options()) }

// PID returns the process id of the plugin.
func (c *Client) PID() int { return c.proc.cmd.Process.Pid }

// Path returns the path of the program.
func (c *Client) Path() string { return c.spec.Path }

// ProtocolVersion returns the version that both sides speak.
func (c *Client) ProtocolVersion() int { return c.version }

// Gone is closed when the process is gone, within 100 ms of its death.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Err says why the process is gone: ErrClosed after Shutdown, else ErrPlugin with the
// exit status and the headline of a crash. It is nil while the process lives.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Process names the plugin's process, and says whether it is stopped by a signal.
func (c *Client) Process() string {
	text := fmt.Sprintf("process %d, %s", c.PID(), c.spec.Path)
	if s, ok := supervise.Of(c.PID()); ok && s.State == 'T' {
		text += ", which is stopped"
	}
	return text
}

func (c *Client) name() string {
	if c.spec.Name != "" {
		return c.spec.Name
	}
	return c.spec.Path
}

// watch waits for the death of the process.
func (c *Client) watch() {
	defer c.watching.Done()
	violation := ""
	select {
	case <-c.proc.exited:
	case <-c.fds.Done():
		if !c.proc.dies(statusBound) { // it lives, but cannot be worked with
			violation = fmt.Sprintf("closed its control socket (%v)", c.fds.Err())
			c.proc.kill()
		}
	}
	if violation == "" {
		c.proc.draining.Wait() // its last words, within drainBound
	}
	c.mu.Lock()
	switch {
	case c.closed:
		c.err = &framework.Error{Op: "call", Transport: c.name(), Peer: framework.NoPeer, Err: errClosed}
	case violation != "":
		c.err = c.death(violation)
	default:
		c.err = c.death(c.proc.exitStatus())
	}
	c.mu.Unlock()
	close(c.gone)
	// Descriptors of calls in progress are of no use to any caller.
	c.fds.Close()
}

// death is the error of a plugin that ended by itself.
func (c *Client) death(how string) error {
	if last := c.out.last(); len(last) > 0 {
		how += fmt.Sprintf("; last output: %s", last[len(last)-1])
	}
	return fmt.Errorf("%w: process %d (%s): %s", framework.ErrPlugin, c.PID(), c.spec.Path, how)
}

// Shutdown ends the process and frees everything that belongs to it. The end of the
// control socket tells the plugin to exit, and it is killed if it does not do so at
// once. Calls in progress fail with ErrClosed. Shutdown may be called again.
func (c *Client) Shutdown() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.destroy(true)
	return nil
}

// destroy ends the process, orderly or not, and waits until nothing of it is left.
func (c *Client) destroy(orderly bool) {
	c.destroying.Do(func() {
		if c.fds != nil {
			c.fds.Close()
		}
		if c.proc != nil {
			if orderly {
				timer := time.NewTimer(exitBound)
				select {
				case <-c.proc.exited:
				case <-timer.C:
				}
				timer.Stop()
			}
			c.proc.kill()
			<-c.proc.exited
		}
		if c.goclient != nil {
			c.goclient.Kill()
		}
		c.watching.Wait()
		if c.proc != nil {
			c.proc.release()
		}
		if c.conn != nil {
			c.conn.Close() // again, if gRPC has closed it
		}
		if c.dir != nil {
			c.dir.Remove()
		}
	})
}

var (
	_ framework.Transport = (*Client)(nil)
	_ framework.Prober    = (*Client)(nil)
	_ framework.Proxier   = (*Client)(nil)
	_ framework.Imager    = (*Client)(nil)
)
