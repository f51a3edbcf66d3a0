package metrics

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/version"
)

// exporter sends the numbers of a registry to a collector of OpenTelemetry, again and again.
type exporter struct{ provider *metric.MeterProvider }

const (
	metricsPath = "/v1/metrics" // of collectors, unless the address has one
	lastExport  = 2 * time.Second
)

// instance is a random UUID: what OpenTelemetry recommends for a process that has no name of its own.
var instance = sync.OnceValue(func() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
})

// newExporter understands the URL of a collector. OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRIC_EXPORT_INTERVAL and the like count.
func newExporter(address string, registry *prometheus.Registry) (*exporter, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w: %q: expected http://HOST:PORT or https://HOST:PORT", framework.ErrInvalid, address)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = metricsPath
	}
	out, err := otlpmetrichttp.New(context.Background(), otlpmetrichttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // a collector may be away for a while; close says if it is in the end
	numbers := bridge.NewMetricProducer(bridge.WithGatherer(registry))
	about, err := resource.New(context.Background(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", "mscclpp"), attribute.String("service.version", version.String()),
		attribute.String("service.instance.id", instance()), // else launchers of several hosts, or jobs, would add to one series
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return &exporter{metric.NewMeterProvider(metric.WithResource(about), metric.WithReader(metric.NewPeriodicReader(out, metric.WithProducer(numbers))))}, nil
}

// close sends the last numbers.
func (e *exporter) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("observe.otlp: %w", err)
	}
	return nil
}
