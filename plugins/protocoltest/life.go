package protocoltest

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/internal/promise"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func (s *suite) lifeTests() []transporttest.Test {
	return []transporttest.Test{
		{Name: "life/signals", Rule: "SIGINT, SIGTERM and SIGPIPE do not end a plugin whose host lives.", Body: s.signals},
		{Name: "life/orphan", Rule: "SIGTERM ends a plugin whose parent is dead, also while another process holds the control socket.", Body: s.orphan},
		{Name: "life/end-of-host", Rule: "The end of the control socket ends the process with status 0 within 100 ms, and its socket is removed.", Body: s.endOfHost},
		{Name: "life/end-of-host-in-a-call", Rule: "The end of the control socket ends the process while a call hangs, too.", Body: s.endOfHostInCall},
		{Name: "life/end-of-host-before-configure", Rule: "The end of the control socket ends a process that was never configured.", Body: s.endOfHostEarly},
	}
}

// signals sends what resource managers and terminals send, before and after Configure.
func (s *suite) signals(t transporttest.TB) {
	all := []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGPIPE}
	each(t, 2*len(all), func(t transporttest.TB, i int) {
		signal, when := all[i/2], "before Configure"
		h := s.connected(t)
		if i%2 == 1 {
			when = "after Configure"
			h.configure(t, s.launcher)
		}
		if err := unix.Kill(h.cmd.Process.Pid, signal); err != nil {
			t.Fatalf("send %v: %v", signal, err)
		}
		gone := !h.alive() || i%2 == 0 && h.tryConfigure(s.launcher) != nil
		if !gone {
			ctx, cancel := h.bounded()
			defer cancel()
			_, err := h.client.Describe(ctx, &pb.DescribeRequest{})
			gone = err != nil
		}
		if gone {
			t.Errorf("%v %s ended the plugin, whose host lives: %s", signal, when, h.status())
		}
	})
}

func (h *host) configure(t transporttest.TB, s *launcher) {
	if err := h.tryConfigure(s); err != nil {
		t.Fatalf("configure: %v%s", err, h.said())
	}
}

func (h *host) tryConfigure(s *launcher) error {
	ctx, cancel := h.within(min(startBound, 10*h.limit))
	defer cancel()
	_, err := h.client.Configure(ctx, &pb.ConfigureRequest{Options: s.options()})
	return err
}

// endOfHost looks five times at most: a busy machine delays some ends.
func (s *suite) endOfHost(t transporttest.TB) {
	var late error
	for range 5 {
		h, _ := s.configured(t)
		watch := promise.Begin()
		h.control.Close()
		if late = watch.Await(h.exited, killBound); late != nil {
			break
		}
		if code := h.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the plugin ended with its host, with %s: want exit status 0", h.status())
			return
		}
		if address, _ := addressIn(h.line); exists(address) {
			t.Errorf("the plugin left its socket %s", address)
		}
		if late = watch.Kept(exitBound); late == nil {
			return
		}
	}
	t.Errorf("the control socket has ended, and the plugin has not soon enough: %v", late)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// endOfHostInCall ends the host while a call waits for a descriptor that never comes. How
// soon the plugin ends is for endOfHost to measure.
func (s *suite) endOfHostInCall(t transporttest.TB) {
	h, _ := s.configured(t)
	answered := make(chan struct{})
	var err error // of the call, once it is answered
	go func() {
		defer close(answered)
		ctx, cancel := h.bounded()
		defer cancel()
		_, err = h.client.Register(ctx, h.register(h.next(), 999))
	}()
	select {
	case <-answered:
		t.Errorf("a call whose descriptor has not arrived was answered at once: %v", err)
		return
	case <-time.After(settle):
	}
	h.control.Close()
	if _, ended := h.ends(h.limit); !ended {
		t.Errorf("the control socket has ended during a call, and the plugin has not after %v", h.limit)
	}
	<-answered
}

func (s *suite) endOfHostEarly(t transporttest.TB) {
	h := s.started(t)
	h.control.Close()
	if _, ended := h.ends(h.limit); !ended {
		t.Errorf("the control socket has ended before Configure, and the plugin has not after %v", h.limit)
		return
	}
	if code := h.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the plugin ended with its host, with %s: want exit status 0", h.status())
	}
	if address, _ := addressIn(h.line); exists(address) {
		t.Errorf("the plugin left its socket %s", address)
	}
}
