package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Signal is the kind of data: metrics or traces.
type Signal string

// Values of Signal.
const (
	Metrics Signal = "metrics"
	Traces  Signal = "traces"
)

const (
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
	maxTimeout      = time.Hour
)

// Config is the destination of one signal.
type Config struct {
	URL     string
	Headers map[string]string
	Timeout time.Duration // of one export, including retries
	Gzip    bool
	TLS     *tls.Config // nil: the system's defaults
}

// FromEnv reads the standard environment variables for a signal through getenv:
// OTEL_SDK_DISABLED, OTEL_METRICS_EXPORTER, OTEL_TRACES_EXPORTER, and of
// OTEL_EXPORTER_OTLP_* (and OTEL_EXPORTER_OTLP_METRICS_*, …_TRACES_*, which take
// precedence) ENDPOINT, PROTOCOL, HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE,
// CLIENT_CERTIFICATE and CLIENT_KEY. ok is false if they request no export. The error
// names the variable with an unsupported value.
//
// Source: OpenTelemetry specification 1.55, "OpenTelemetry Protocol Exporter" and
// "OpenTelemetry Environment Variable Specification".
func FromEnv(s Signal, getenv func(string) string) (c Config, ok bool, err error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return c, false, nil
	}
	exporter := strings.TrimSpace(getenv("OTEL_" + strings.ToUpper(string(s)) + "_EXPORTER"))
	if exporter == "none" {
		return c, false, nil
	}
	own := "OTEL_EXPORTER_OTLP_" + strings.ToUpper(string(s)) + "_"
	look := func(name string) (value, from string) {
		for _, from := range []string{own + name, "OTEL_EXPORTER_OTLP_" + name} {
			if v := strings.TrimSpace(getenv(from)); v != "" {
				return v, from
			}
		}
		return "", "OTEL_EXPORTER_OTLP_" + name
	}
	endpoint, from := look("ENDPOINT")
	if endpoint == "" && exporter != "otlp" {
		return c, false, nil
	}
	if exporter != "" && exporter != "otlp" {
		return c, false, fmt.Errorf("OTEL_%s_EXPORTER: %q is not known; sliver has otlp and none", strings.ToUpper(string(s)), exporter)
	}
	if endpoint == "" {
		endpoint = defaultEndpoint
	}
	if c.URL, err = signalURL(endpoint, s, from == own+"ENDPOINT"); err != nil {
		return c, false, fmt.Errorf("%s: %w", from, err)
	}
	if p, from := look("PROTOCOL"); p != "" && p != "http/protobuf" {
		return c, false, fmt.Errorf("%s: %q is not supported; sliver speaks http/protobuf", from, p)
	}
	h, from := look("HEADERS")
	if c.Headers, err = headers(h); err != nil {
		return c, false, fmt.Errorf("%s: %w", from, err)
	}
	c.Timeout = defaultTimeout
	if t, from := look("TIMEOUT"); t != "" {
		ms, err := strconv.ParseInt(t, 10, 64)
		if err != nil || ms < 0 || ms > maxTimeout.Milliseconds() {
			return c, false, fmt.Errorf("%s: invalid number of milliseconds %q", from, t)
		}
		if ms > 0 {
			c.Timeout = time.Duration(ms) * time.Millisecond
		}
	}
	switch z, from := look("COMPRESSION"); z {
	case "", "none":
	case "gzip":
		c.Gzip = true
	default:
		return c, false, fmt.Errorf("%s: %q is neither gzip nor none", from, z)
	}
	if c.TLS, err = tlsConfig(look); err != nil {
		return c, false, err
	}
	return c, true, nil
}

// signalURL returns the URL to post to: a signal-specific variable gives it in full, the
// common one is a base.
func signalURL(endpoint string, s Signal, own bool) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%q is no URL such as http://localhost:4318", endpoint)
	}
	switch {
	case !own:
		u = u.JoinPath("v1", string(s))
	case u.Path == "":
		u.Path = "/"
	}
	return u.String(), nil
}

// headers parses key=value,…, each part URL-encoded.
func headers(s string) (map[string]string, error) {
	out := map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		k = strings.TrimSpace(k)
		v, err := url.PathUnescape(strings.TrimSpace(v))
		if !ok || k == "" || err != nil {
			return nil, fmt.Errorf("the part for %q is not key=value, URL-encoded", k) // the value may be a secret
		}
		out[k] = v
	}
	return out, nil
}

// maxPEM limits a file of certificates, in bytes: the largest stores of all authorities
// have half a megabyte.
const maxPEM = 4 << 20

func tlsConfig(look func(string) (string, string)) (*tls.Config, error) {
	ca, caFrom := look("CERTIFICATE")
	cert, certFrom := look("CLIENT_CERTIFICATE")
	key, _ := look("CLIENT_KEY")
	if ca == "" && cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := safefile.ReadNamed(ca, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", caFrom, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate is in %s", caFrom, ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", certFrom, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
