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
	listener net.Listener // nil: it only exports
	push     *exporter    // nil: it only answers
	http     http.Server
	meter    *meter
	stop     chan struct{}
	done     sync.WaitGroup
}

// pollEvery is how often records are read: a ring has room for what a rank writes meanwhile, unless its calls take less
// than 3 µs.
const pollEvery = 5 * time.Millisecond

// Serve answers at an address, as observe.metrics has it, and sends the same numbers to a collector of OpenTelemetry, as observe.otlp
// has it; either may be empty. It counts what the ranks of Follow do, one job after the other.
func Serve(address, otlp string) (*Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newAdapters(sysAdapters))
	s := &Server{meter: newMeter(registry), stop: make(chan struct{})}
	var err error
	if address != "" {
		if s.listener, err = listen(address); err != nil {
			return nil, fmt.Errorf("observe.metrics: %w", err)
		}
	}
	if otlp != "" {
		if s.push, err = newExporter(otlp, registry); err != nil {
			if s.listener != nil {
				_ = s.listener.Close() // nothing was served
			}
			return nil, fmt.Errorf("observe.otlp: %w", err)
		}
	}
	if s.listener != nil {
		s.answer(registry)
	}
	s.done.Go(s.read)
	return s, nil
}

// Follow counts what the ranks do that have their states in memory, until the function that it returns is called. Counters go on where
// those of the ranks before them ended.
func (s *Server) Follow(memory *observe.Memory) (leave func()) {
	if s == nil {
		return func() {}
	}
	s.meter.follow(memory)
	return func() {
		s.meter.poll()
		s.meter.follow(nil)
	}
}

func (s *Server) answer(registry *prometheus.Registry) {
	answer := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		s.meter.poll()
		answer.ServeHTTP(w, r)
	})
	s.http = http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	s.done.Go(func() { _ = s.http.Serve(s.listener) }) // it ends with Close
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

// Address is where it answers; empty: nowhere.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	if s.listener.Addr().Network() == "unix" {
		return "unix:" + s.listener.Addr().String()
	}
	return "http://" + s.listener.Addr().String() + "/metrics"
}

// Close sends the last numbers, and stops answering.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	close(s.stop)
	err := s.http.Close()
	s.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if s.push != nil {
		err = errors.Join(err, s.push.close())
	}
	return err
}
