package bootstrap

import (
	"fmt"
	"net"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/links"
	"golang.org/x/sys/unix"
)

// watchHosts starts to watch the links to other hosts, if there are any.
func (s *startup) watchHosts(table []entry) {
	for r := range table {
		if table[r].host != s.t.self.host {
			s.t.work.Go(s.t.monitor)
			return
		}
	}
}

func (t *TCP) monitor() {
	tick := time.NewTicker(t.cfg.Heartbeat)
	defer tick.Stop()
	kept := map[*links.Link]bool{} // keep-alive is on
	for {
		t.mu.Lock()
		var remote []*links.Link
		for l := range t.links {
			if t.table[l.Peer].host != t.self.host {
				remote = append(remote, l)
			}
		}
		t.mu.Unlock()
		for _, l := range remote {
			if !kept[l] {
				kept[l] = true
				keepAlive(l.Conn, t.cfg.Heartbeat)
			} else if s := silence(l.Conn); s.dead(time.Duration(t.cfg.missed) * t.cfg.Heartbeat) {
				t.suspect(l.Peer, fmt.Sprintf("its host has been silent for %v", s.since.Round(time.Millisecond)))
			}
		}
		select {
		case <-tick.C:
		case <-t.life.Done():
			return
		}
	}
}

func keepAlive(conn *net.TCPConn, beat time.Duration) {
	_ = conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: beat, Interval: beat, Count: missedBeats})
}

// quiet is how long the other kernel has said nothing, and what it was asked.
type quiet struct {
	since  time.Duration
	window uint32        // 0: the peer's process does not read
	probe  time.Duration // until the kernel asks again, with a window of 0
}

// dead judges a silence. While a peer does not read, the kernel stops to send
// heartbeats and asks ever less often for its window: then the silence between
// two such questions means nothing.
func (q quiet) dead(bound time.Duration) bool {
	if q.window == 0 {
		bound = max(bound, 3*q.probe)
	}
	return q.since > bound
}

func silence(conn *net.TCPConn) quiet {
	raw, err := conn.SyscallConn()
	if err != nil {
		return quiet{window: 1}
	}
	q := quiet{window: 1}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		q.since = time.Duration(info.Last_ack_recv) * time.Millisecond
		q.window = info.Snd_wnd
		if q.window == 0 {
			q.probe = min(time.Duration(info.Rto)*time.Microsecond<<min(info.Backoff, 20), 2*time.Minute)
		}
	})
	return q
}
