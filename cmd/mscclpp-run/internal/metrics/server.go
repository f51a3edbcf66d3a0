// Package metrics answers Prometheus with numbers of the ranks of a launcher: calls, their bytes and times, waits, failures,
// and the queues of proxies.
package metrics

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Server answers scrapers, and reads records in the meantime. The nil Server does neither.
type Server struct {
	listener net.Listener
	http     http.Server
	meter    *meter
	stop     chan struct{}
	done     sync.WaitGroup
}

// pollEvery is how often records are read: a ring has room for what a rank writes meanwhile, unless its calls take less
// than 3 µs.
const pollEvery = 5 * time.Millisecond

// Serve answers at an address, as observe.metrics has it. The ranks have their states in memory, which stays until Close.
func Serve(address string, memory *observe.Memory) (*Server, error) {
	l, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("observe.metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	s := &Server{listener: l, meter: newMeter(memory, registry), stop: make(chan struct{})}
	answer := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		s.meter.poll()
		answer.ServeHTTP(w, r)
	})
	s.http = http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	s.done.Go(func() { _ = s.http.Serve(l) }) // it ends with Close
	s.done.Go(s.read)
	return s, nil
}

// listen understands a port of the loopback address, an address with a port, and a path behind "unix:".
func listen(address string) (net.Listener, error) {
	if path, found := strings.CutPrefix(address, "unix:"); found {
		l, err := net.Listen("unix", path)
		if err == nil {
			err = os.Chmod(path, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: expected a path that does not exist yet, in a folder of this user", err)
		}
		return l, nil
	}
	if _, err := strconv.Atoi(address); err == nil {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: expected PORT, HOST:PORT or unix:PATH", framework.ErrInvalid, address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("%w: expected a free port; 0 takes any", err)
	}
	return l, nil
}

func (s *Server) read() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.meter.poll()
		case <-s.stop:
			return
		}
	}
}

// Address is where it answers.
func (s *Server) Address() string {
	if s.listener.Addr().Network() == "unix" {
		return "unix:" + s.listener.Addr().String()
	}
	return "http://" + s.listener.Addr().String() + "/metrics"
}

// Close stops answering.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	close(s.stop)
	err := s.http.Close()
	s.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
