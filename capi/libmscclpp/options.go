package main

// #include "internal.h"
import "C"

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/setup"
)

// plan reads the options of a communicator. closer ends the log, and may be nil.
func plan(o *C.mscclpp_comm_options_t) (p setup.Plan, timeout time.Duration, closer io.Closer, err error) {
	p = setup.Plan{Getenv: getenv, Device: C.GoString(o.device), BuiltIn: settle()}
	settings, err := settingsOf("settings", o.settings, o.settings_count)
	if err != nil {
		return p, 0, nil, err
	}
	from := sources(C.GoString(o.config_file), settings)
	if from.Defaults, err = settingsOf("defaults", o.defaults, o.defaults_count); err != nil {
		return p, 0, nil, err
	}
	if p.Config, err = config.Load(from); err != nil {
		return p, 0, nil, fmt.Errorf("configuration: %w", err)
	}
	if timeout, err = timeoutOf(o, &p.Config.Config); err != nil {
		return p, 0, nil, err
	}
	if p.Place, err = placeOf(o); err != nil {
		return p, 0, nil, err
	}
	if p.Log, closer, err = logOf(o, p.Config.Log); err != nil {
		return p, 0, nil, err
	}
	closer = shareLog(closer)
	for _, w := range p.Config.Warnings {
		p.Log.Warn("configuration", "warning", w)
	}
	return p, timeout, closer, nil
}

// settingsOf reads a list of settings, whose name is in errors.
func settingsOf(name string, list **C.char, count C.size_t) ([]config.Setting, error) {
	if count == 0 {
		return nil, nil
	}
	if list == nil || count > math.MaxInt32 {
		return nil, fmt.Errorf("%w: comm create: %s is NULL or %s_count wrong: %d settings", framework.ErrInvalid, name, name, count)
	}
	var out []config.Setting
	for i, s := range unsafe.Slice(list, int(count)) {
		key, value, ok := strings.Cut(C.GoString(s), "=")
		if !ok {
			return nil, fmt.Errorf("%w: comm create: %s[%d] is %q: expected \"key=value\"", framework.ErrInvalid, name, i, key)
		}
		out = append(out, config.Setting{Key: key, Value: value, Flag: fmt.Sprintf("%s[%d]", name, i)})
	}
	return out, nil
}

func timeoutOf(o *C.mscclpp_comm_options_t, cfg *config.Config) (time.Duration, error) {
	if o.timeout == 0 {
		return time.Duration(cfg.Bootstrap.Timeout + cfg.Plugins.StartTimeout), nil
	}
	if o.timeout > math.MaxInt64 {
		return 0, fmt.Errorf("%w: comm create: timeout %d ns: expected at most %d", framework.ErrInvalid, o.timeout, int64(math.MaxInt64))
	}
	return time.Duration(o.timeout), nil
}

// placeOf returns nil where the launcher's variables say the place.
func placeOf(o *C.mscclpp_comm_options_t) (*setup.Place, error) {
	if o.id == nil {
		if o.rank != 0 || o.ranks != 0 {
			return nil, fmt.Errorf("%w: comm create: rank %d of %d without an id: expected an id, or rank and ranks 0, which means the launcher's", framework.ErrInvalid, o.rank, o.ranks)
		}
		return nil, nil
	}
	if o.ranks < 1 || o.rank < 0 || o.rank >= o.ranks {
		return nil, fmt.Errorf("%w: comm create: rank %d of %d: expected a rank from 0 to one less than ranks", framework.ErrInvalid, o.rank, o.ranks)
	}
	id, err := bootstrap.UniqueIDFromBytes(C.GoBytes(unsafe.Pointer(o.id), C.int(unsafe.Sizeof(*o.id))))
	if err != nil {
		return nil, fmt.Errorf("comm create: %w", err)
	}
	return &setup.Place{ID: id, Rank: int(o.rank), Size: int(o.ranks)}, nil
}

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

func logOf(o *C.mscclpp_comm_options_t, cfg config.Log) (*slog.Logger, io.Closer, error) {
	if o.log == nil {
		rank := getenv(bootstrap.EnvRank)
		if o.id != nil {
			rank = fmt.Sprint(o.rank)
		}
		return setup.OpenLog(cfg, rank)
	}
	level, ok := levels[cfg.Level]
	if !ok { // "none"
		return slog.New(slog.DiscardHandler), nil, nil
	}
	c := newCallback(o.log, o.log_context, level)
	return slog.New(c), c, nil
}
