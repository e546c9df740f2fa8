package program

import (
	"context"
	"io"
	"log/slog"
	"slices"
)

// logHandler returns the slog handler for the format and the level of the flags.
func (f *Flags) logHandler(w io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "text" {
		return lateHandler{Handler: slog.NewTextHandler(w, options)}
	}
	return lateHandler{Handler: slog.NewJSONHandler(w, options)}
}

// lateHandler formats the attributes of a logger when a record is written. Package slog's handlers
// format attributes when the logger is made. Each reconciliation has a logger of its own, but logs
// nothing if nothing has changed. So formatting at the start would mostly be a waste.
type lateHandler struct {
	slog.Handler

	attrs []slog.Attr // not yet passed to Handler
}

// Handle implements slog.Handler.
func (h lateHandler) Handle(ctx context.Context, record slog.Record) error {
	return h.Handler.WithAttrs(h.attrs).Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h lateHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lateHandler{h.Handler, slices.Concat(h.attrs, attrs)}
}

// WithGroup implements slog.Handler.
func (h lateHandler) WithGroup(name string) slog.Handler {
	return lateHandler{Handler: h.Handler.WithAttrs(h.attrs).WithGroup(name)}
}
