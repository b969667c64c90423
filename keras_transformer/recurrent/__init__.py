"""The recurrent networks that the Transformer replaced: cells, attentions, and the encoder and decoder made of them.

`cells` has the equations of Elman, LSTM and GRU, `attention` the attentions of Bahdanau and Luong, `stacks` the encoder
and the decoder. Like `layers`, it uses `keras.ops` only.
"""
