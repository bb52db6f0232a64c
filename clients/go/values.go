package main

import (
	"encoding/json"
	"fmt"
	"strings"

	contextv1 "context-service/proto/context/v1"

	"google.golang.org/protobuf/types/known/structpb"
)

// object is a JSON object. Its values are nil, bool, int64, float64, string, list and object.
type object = map[string]any

// list is a JSON array.
type list = []any

// toObject returns the message of an object. Integers stay integers. Values deeper than about 30 levels would need
// json_value, because protobuf decoders refuse messages that are nested more than about 100 deep
// (proto/context/v1/value.proto).
func toObject(members object) *contextv1.Object {
	fields := make(map[string]*contextv1.Value, len(members))
	for key, value := range members {
		fields[key] = toValue(value)
	}
	return &contextv1.Object{Fields: fields}
}

// toValue returns the message of a JSON value. It panics on any other Go value.
func toValue(value any) *contextv1.Value {
	switch value := value.(type) {
	case nil:
		return &contextv1.Value{Kind: &contextv1.Value_NullValue{NullValue: structpb.NullValue_NULL_VALUE}}
	case bool:
		return &contextv1.Value{Kind: &contextv1.Value_BoolValue{BoolValue: value}}
	case int:
		return toValue(int64(value))
	case int64:
		return &contextv1.Value{Kind: &contextv1.Value_IntValue{IntValue: value}}
	case float64:
		return &contextv1.Value{Kind: &contextv1.Value_DoubleValue{DoubleValue: value}}
	case string:
		return &contextv1.Value{Kind: &contextv1.Value_StringValue{StringValue: value}}
	case list:
		values := make([]*contextv1.Value, len(value))
		for index, inner := range value {
			values[index] = toValue(inner)
		}
		return &contextv1.Value{Kind: &contextv1.Value_ListValue{ListValue: &contextv1.ListValue{Values: values}}}
	case object:
		return &contextv1.Value{Kind: &contextv1.Value_ObjectValue{ObjectValue: toObject(value)}}
	}
	panic(fmt.Sprintf("not a JSON value: %T", value))
}

// fromObject returns the object of a message.
func fromObject(message *contextv1.Object) (object, error) {
	members := object{}
	for key, value := range message.GetFields() {
		member, err := fromValue(value)
		if err != nil {
			return nil, err
		}
		members[key] = member
	}
	return members, nil
}

// fromValue returns the JSON value of a message.
func fromValue(message *contextv1.Value) (any, error) {
	switch kind := message.GetKind().(type) {
	case *contextv1.Value_BoolValue:
		return kind.BoolValue, nil
	case *contextv1.Value_IntValue:
		return kind.IntValue, nil
	case *contextv1.Value_DoubleValue:
		return kind.DoubleValue, nil
	case *contextv1.Value_StringValue:
		return kind.StringValue, nil
	case *contextv1.Value_ListValue:
		values := list{}
		for _, inner := range kind.ListValue.GetValues() {
			value, err := fromValue(inner)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, nil
	case *contextv1.Value_ObjectValue:
		return fromObject(kind.ObjectValue)
	case *contextv1.Value_JsonValue:
		return fromJSON(kind.JsonValue)
	}
	return nil, nil
}

// fromJSON reads JSON text. encoding/json alone would turn integers into float64.
func fromJSON(text string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return numbers(value)
}

// numbers replaces each json.Number in the value by an int64, or by a float64 when it is no 64-bit integer.
func numbers(value any) (any, error) {
	var err error
	switch value := value.(type) {
	case json.Number:
		if integer, err := value.Int64(); err == nil {
			return integer, nil
		}
		return value.Float64()
	case list:
		for index := range value {
			if value[index], err = numbers(value[index]); err != nil {
				return nil, err
			}
		}
	case object:
		for key := range value {
			if value[key], err = numbers(value[key]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}
