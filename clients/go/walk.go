// Stores, finds, changes and deletes entries through the generated client, follows their changes, and reads the errors
// of invalid calls. README.md says how to build it.
//
//	walk [127.0.0.1:7420 or https://host:port]
//
// With CONTEXT_API_KEY it sends that key, and checks that calls without it are refused.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"reflect"
	"strings"
	"time"

	contextv1 "context-service/proto/context/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	timeout   = 30 * time.Second
	unknownID = 1<<53 - 1
)

// apiKey is sent with every call as the metadata key `authorization`.
type apiKey string

func (key apiKey) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(key)}, nil
}

// RequireTransportSecurity returns false because the service may listen on this machine. Return true when the key
// crosses a network: gRPC then refuses to send it without TLS.
func (key apiKey) RequireTransportSecurity() bool { return false }

// withDeadline gives each unary call a deadline unless it has one.
func withDeadline(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, given := ctx.Deadline(); !given {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return invoke(ctx, method, request, reply, connection, options...)
}

// connect opens a connection in plain text to host:port or http://host:port, or with TLS to https://host:port.
func connect(address string, options ...grpc.DialOption) *grpc.ClientConn {
	security := grpc.WithInsecure()
	if strings.HasPrefix(address, "https://") {
		// nil: trust the authorities of the system, or on Linux those in the file that SSL_CERT_FILE names.
		security = grpc.WithTransportCredentials(credentials.NewTLS(nil))
	}
	options = append(options, security, grpc.WithUnaryInterceptor(withDeadline))
	target := strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	return must(grpc.Dial(target, options...))
}

func walk(ctx context.Context, contexts contextv1.ContextServiceClient) {
	thread := fmt.Sprintf("go-%d", os.Getpid())
	onlyThread := &contextv1.Filter{ThreadId: proto.String(thread)}

	// Store. Tags are normalised, integers beyond 2^53 stay exact, images are bytes.
	attributes := object{
		"status": "active", "attempts": int64(1 << 62), "ratio": 0.5,
		"nested": object{"list": list{int64(1), nil, true, "x"}},
	}
	stored := must(contexts.StoreContext(ctx, &contextv1.StoreContextRequest{
		ThreadId: thread,
		Source:   "agent",
		Text:     "The queue is drained before the socket closes.",
		Tags:     &contextv1.StringList{Values: []string{" Queue ", "queue", "Shutdown"}},
		Metadata: toObject(attributes),
		Images:   &contextv1.ImageList{Images: []*contextv1.Image{{Data: []byte("\x89PNG\r\n"), MimeType: proto.String("image/png")}}},
	}))
	check(stored.Success && stored.ContextId > 0 && stored.Version == 1, stored)
	id := stored.ContextId

	// Get.
	get := func() *contextv1.Context {
		reply := must(contexts.GetContextByIds(ctx, &contextv1.GetContextByIdsRequest{ContextIds: []int64{id, unknownID}}))
		check(len(reply.Contexts) == 1, reply)
		return reply.Contexts[0]
	}
	entry := get()
	check(entry.TextContent == "The queue is drained before the socket closes.", entry)
	check(reflect.DeepEqual(entry.Tags, []string{"queue", "shutdown"}), entry.Tags)
	check(reflect.DeepEqual(must(fromObject(entry.Metadata)), attributes), entry.Metadata)
	check(entry.ContentType == "multimodal" && string(entry.Images.Images[0].Data) == "\x89PNG\r\n", entry.Images)
	check(entry.CreatedAt.AsTime().Equal(entry.UpdatedAt.AsTime()), entry)

	// Metadata deeper than 16 levels arrives as JSON text.
	deep := object{"integer": int64(math.MaxInt64), "fraction": 0.5}
	for level := 0; level < 12; level++ {
		deep = object{"inner": list{deep}}
	}
	nested := must(contexts.StoreContext(ctx, &contextv1.StoreContextRequest{ThreadId: thread, Source: "agent", Text: "Deep.", Metadata: toObject(deep)}))
	nestedEntry := must(contexts.GetContextByIds(ctx, &contextv1.GetContextByIdsRequest{ContextIds: []int64{nested.ContextId}})).Contexts[0]
	check(reflect.DeepEqual(must(fromObject(nestedEntry.Metadata)), deep), nestedEntry.Metadata)

	// Search by metadata and full text.
	narrowed := &contextv1.Filter{
		ThreadId:        proto.String(thread),
		MetadataFilters: []*contextv1.MetadataFilter{{Key: "attempts", Operator: proto.String("eq"), Value: toValue(1 << 62)}},
	}
	found := must(contexts.SearchContext(ctx, &contextv1.SearchContextRequest{Filter: narrowed}))
	check(len(found.Results) == 1 && found.Results[0].Id == id, found)
	words := must(contexts.FtsSearchContext(ctx, &contextv1.FtsSearchContextRequest{
		Query: "draining queues", Filter: onlyThread, Highlight: proto.Bool(true),
	}))
	check(len(words.Results) == 1 && words.Results[0].Id == id, words)
	check(strings.Contains(words.Results[0].GetHighlighted(), "<mark>"), words)

	// The error names every invalid field and its allowed values.
	_, err := contexts.StoreContext(ctx, &contextv1.StoreContextRequest{ThreadId: " ", Source: "robot", Text: "x"})
	refused(err, codes.InvalidArgument, "INVALID_ARGUMENT")
	fields := violations(err)
	check(len(fields) == 2 && fields["thread_id"] != "" && strings.Contains(fields["source"], "agent"), fields)
	_, err = contexts.SearchContext(ctx, &contextv1.SearchContextRequest{Limit: proto.Int64(500)})
	refused(err, codes.InvalidArgument, "INVALID_ARGUMENT")
	check(strings.Contains(violations(err)["limit"], "100"), violations(err))

	// An update with the version that was read succeeds once.
	patch := toObject(object{"status": "done", "ratio": nil})
	changed := must(contexts.UpdateContext(ctx, &contextv1.UpdateContextRequest{
		ContextId: id, MetadataPatch: patch, ExpectedVersion: proto.Int64(entry.Version),
	}))
	check(reflect.DeepEqual(changed.UpdatedFields, []string{"metadata"}) && changed.Version == 2, changed)
	check(changed.Revision > stored.Revision, changed)
	_, err = contexts.UpdateContext(ctx, &contextv1.UpdateContextRequest{
		ContextId: id, Text: proto.String("too late"), ExpectedVersion: proto.Int64(entry.Version),
	})
	refused(err, codes.Aborted, "VERSION_MISMATCH")
	_, err = contexts.UpdateContext(ctx, &contextv1.UpdateContextRequest{ContextId: unknownID, Text: proto.String("x")})
	refused(err, codes.NotFound, "CONTEXT_NOT_FOUND")
	// An empty list clears the field; an absent one does not change it.
	must(contexts.UpdateContext(ctx, &contextv1.UpdateContextRequest{ContextId: id, Images: &contextv1.ImageList{}}))
	entry = get()
	attributes["status"] = "done"
	delete(attributes, "ratio")
	check(reflect.DeepEqual(must(fromObject(entry.Metadata)), attributes), entry.Metadata)
	check(entry.ContentType == "text" && len(entry.GetImages().GetImages()) == 0, entry)
	check(reflect.DeepEqual(entry.Tags, []string{"queue", "shutdown"}), entry.Tags)

	// A store whose deadline passed may have happened. A retry with its idempotency key stores it at most once: the
	// second retry returns the reply of the first.
	keyed := metadata.AppendToOutgoingContext(ctx, "idempotency-key", thread)
	request := &contextv1.StoreContextRequest{ThreadId: thread, Source: "user", Text: "Stored once."}
	hurried, cancel := context.WithTimeout(keyed, time.Microsecond)
	_, err = contexts.StoreContext(hurried, request)
	cancel()
	check(status.Code(err) == codes.DeadlineExceeded, err)
	first := must(contexts.StoreContext(keyed, request))
	between := must(contexts.StoreContext(ctx, &contextv1.StoreContextRequest{ThreadId: thread, Source: "agent", Text: "Between."}))
	again := must(contexts.StoreContext(keyed, request))
	check(again.ContextId == first.ContextId && first.ContextId < between.ContextId, first, between, again)
	_, err = contexts.StoreContext(keyed, &contextv1.StoreContextRequest{ThreadId: thread, Source: "user", Text: "Stored twice?"})
	refused(err, codes.InvalidArgument, "IDEMPOTENCY_KEY_REUSED")

	// A batch with an invalid item names it and stores nothing.
	var entries []*contextv1.StoreContextRequest
	for _, text := range []string{"one", " ", "three"} {
		entries = append(entries, &contextv1.StoreContextRequest{ThreadId: thread, Source: "user", Text: text})
	}
	_, err = contexts.StoreContextBatch(ctx, &contextv1.StoreContextBatchRequest{Entries: entries})
	refused(err, codes.InvalidArgument, "INVALID_ARGUMENT")
	fields = violations(err)
	check(len(fields) == 1 && fields["entries[1].text"] != "", fields)
	partly := must(contexts.StoreContextBatch(ctx, &contextv1.StoreContextBatchRequest{Entries: entries, Atomic: proto.Bool(false)}))
	check(partly.Succeeded == 2 && partly.Failed == 1 && !partly.Success, partly)
	check(partly.Results[0].Success && !partly.Results[1].Success && partly.Results[2].Success, partly)

	// Threads, then delete.
	threads := must(contexts.ListThreads(ctx, &contextv1.ListThreadsRequest{Limit: proto.Int64(1)}))
	check(len(threads.Threads) == 1 && threads.Threads[0].ThreadId == thread && threads.Threads[0].EntryCount == 6, threads)
	gone := must(contexts.DeleteContext(ctx, &contextv1.DeleteContextRequest{ContextIds: &contextv1.IdList{Values: []int64{id, unknownID}}}))
	check(gone.DeletedCount == 1, gone)
	rest := must(contexts.DeleteContextBatch(ctx, &contextv1.DeleteContextBatchRequest{ThreadIds: &contextv1.StringList{Values: []string{thread}}}))
	check(rest.DeletedCount == 5 && reflect.DeepEqual(rest.CriteriaUsed, []string{"thread_ids"}), rest)
	left := must(contexts.SearchContext(ctx, &contextv1.SearchContextRequest{Filter: onlyThread}))
	check(len(left.Results) == 0, left)
}

// follow checks the list of changes, with a wait for the next one, and the stream of them.
func follow(ctx context.Context, contexts contextv1.ContextServiceClient, changes contextv1.ChangeServiceClient) {
	thread := fmt.Sprintf("go-changes-%d", os.Getpid())
	onlyThread := &contextv1.Filter{ThreadId: proto.String(thread)}

	// A list that waits returns the next change.
	now := must(changes.ListChanges(ctx, &contextv1.ListChangesRequest{Cursor: proto.String("now")}))
	check(len(now.Changes) == 0 && !now.HasMore && now.Revision > 0, now)
	waited := make(chan *contextv1.ListChangesResponse)
	go func() {
		waited <- must(changes.ListChanges(ctx, &contextv1.ListChangesRequest{
			Cursor: &now.NextCursor, WaitMs: proto.Int64(25_000), Filter: onlyThread, PreviewChars: proto.Int64(100),
		}))
	}()
	stored := must(contexts.StoreContext(ctx, &contextv1.StoreContextRequest{ThreadId: thread, Source: "user", Text: "Wake the reader."}))
	page := <-waited
	check(len(page.Changes) == 1, page)
	change := page.Changes[0]
	check(change.Revision == stored.Revision && change.Operation == "created" && change.CommitEnd, change)
	check(change.Entity == "context" && change.Id == fmt.Sprint(stored.ContextId), change)
	check(change.GetPreview() == "Wake the reader." && change.Context == nil, change)
	// The end of the wait is a normal reply.
	empty := must(changes.ListChanges(ctx, &contextv1.ListChangesRequest{
		Cursor: &page.NextCursor, WaitMs: proto.Int64(50), Filter: onlyThread,
	}))
	check(len(empty.Changes) == 0, empty)

	// A stream sends the existing entries first, then each committed change.
	streaming, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stream := must(changes.Watch(streaming, &contextv1.WatchRequest{
		Snapshot: proto.Bool(true), Filter: onlyThread, IncludeBody: proto.Bool(true),
	}))
	opened := must(stream.Recv())
	check(opened.GetOpened() != nil && opened.Cursor == "", opened)
	entry := must(stream.Recv())
	check(entry.GetEntry().GetContext().GetTextContent() == "Wake the reader." && entry.Cursor == "", entry)
	end := must(stream.Recv())
	check(end.GetSnapshotEnd().GetRevision() >= stored.Revision && end.Cursor != "", end)
	gone := must(contexts.DeleteContext(ctx, &contextv1.DeleteContextRequest{ThreadId: proto.String(thread)}))
	deleted := must(stream.Recv())
	check(deleted.GetChange().GetOperation() == "deleted" && deleted.GetChange().GetRevision() == gone.Revision, deleted)
	check(deleted.GetChange().Context == nil, deleted)
	// The cursor of any frame continues after it.
	stream = must(changes.Watch(streaming, &contextv1.WatchRequest{Cursor: &end.Cursor, Filter: onlyThread}))
	check(must(stream.Recv()).GetOpened() != nil)
	again := must(stream.Recv())
	check(again.Cursor == deleted.Cursor && again.GetChange().GetRevision() == gone.Revision, again)
	cancel()
	_, err := stream.Recv()
	check(status.Code(err) == codes.Canceled, err)

	for _, cursor := range []string{"garbled", end.Cursor + "A", end.Cursor[1:]} {
		_, err = changes.ListChanges(ctx, &contextv1.ListChangesRequest{Cursor: proto.String(cursor)})
		refused(err, codes.InvalidArgument, "CURSOR_INVALID")
		// The error of a stream arrives with its first frame.
		stream = must(changes.Watch(ctx, &contextv1.WatchRequest{Cursor: proto.String(cursor)}))
		_, err = stream.Recv()
		refused(err, codes.InvalidArgument, "CURSOR_INVALID")
	}
	_, err = changes.ListChanges(ctx, &contextv1.ListChangesRequest{Limit: proto.Int64(1001)})
	refused(err, codes.InvalidArgument, "INVALID_ARGUMENT")
	check(strings.Contains(violations(err)["limit"], "1000"), violations(err))
}

// authenticate checks what the key allows, and that a call without a key is refused.
func authenticate(ctx context.Context, address string, connection *grpc.ClientConn) {
	caller := must(contextv1.NewApiKeyServiceClient(connection).GetCaller(ctx, &contextv1.GetCallerRequest{}))
	check(reflect.DeepEqual(caller.Scopes, []string{"read", "write", "delete"}), caller)

	anonymous := connect(address)
	defer anonymous.Close()
	_, err := contextv1.NewContextServiceClient(anonymous).ListThreads(ctx, &contextv1.ListThreadsRequest{})
	refused(err, codes.Unauthenticated, "UNAUTHENTICATED")
}

// must returns the value, or ends the program when there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		log.Output(2, fmt.Sprintf("%v (reason %q)", err, reason(err)))
		os.Exit(1)
	}
	return value
}

// check ends the program unless the condition holds.
func check(condition bool, values ...any) {
	if !condition {
		log.Output(2, fmt.Sprintln(append([]any{"check failed:"}, values...)...))
		os.Exit(1)
	}
}

// refused ends the program unless the call failed with this gRPC code and reason.
func refused(err error, code codes.Code, want string) {
	if status.Code(err) != code || reason(err) != want {
		log.Output(2, fmt.Sprintf("expected %v %s: %v (reason %q)", code, want, err, reason(err)))
		os.Exit(1)
	}
}

func main() {
	log.SetFlags(log.Lshortfile)
	address := "127.0.0.1:7420"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	var options []grpc.DialOption
	key := os.Getenv("CONTEXT_API_KEY")
	if key != "" {
		options = append(options, grpc.WithPerRPCCredentials(apiKey(key)))
	}
	connection := connect(address, options...)
	defer connection.Close()

	ctx := context.Background()
	if key != "" {
		authenticate(ctx, address, connection)
	}
	contexts := contextv1.NewContextServiceClient(connection)
	walk(ctx, contexts)
	follow(ctx, contexts, contextv1.NewChangeServiceClient(connection))
	how := "without a key"
	if key != "" {
		how = "with an API key"
	}
	fmt.Printf("go: stored, found, changed, deleted and followed through the generated client, %s\n", how)
}
